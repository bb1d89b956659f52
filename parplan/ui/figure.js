// Draws a Plotly figure in a place that stays from one run of the page to the next: a change redraws the figure where it
// is, which takes a third of the time of building it anew, and nothing flickers.

const LIBRARY = "__LIBRARY__"; // address of Plotly, below the page's own
let loading;

function plotly() {
  loading ??= new Promise((loaded, failed) => {
    const own = document.querySelector('script[type="module"][src*="static/js/"]').src;
    const script = document.createElement("script");
    script.addEventListener("load", loaded);
    script.addEventListener("error", failed);
    script.src = own.replace(/static\/js\/.*/, LIBRARY);
    document.head.append(script);
  });
  return loading;
}

// Within reach of the keyboard, so that its words are read out; and the tab around it, which looks for something to focus
// at every change below it, need not look through all points. A finger that scrolls past is not a click, though Plotly
// takes it for one: the browser cancels its pointer.
function place(parent) {
  const made = document.createElement("div");
  made.setAttribute("role", "figure");
  made.tabIndex = 0;
  made.addEventListener("pointerdown", () => (made.scrolled = false), true);
  made.addEventListener("pointercancel", () => (made.scrolled = true), true);
  parent.append(made);
  return made;
}

// A legend in more lines than its margin has room for takes them from the plot: the figure grows by as much. How much is
// kept, so that the next figure is drawn at its height at once.
async function fit(figure) {
  if (!figure._fullLayout) return; // taken down meanwhile
  const { height, margin } = figure.drawn, plot = height - margin.t - margin.b;
  const missing = Math.round(plot - figure._fullLayout._size.h);
  const grown = Math.max((figure.grown ?? 0) + missing, 0);
  if (Math.abs(grown - (figure.grown ?? 0)) < 2) return;
  figure.grown = grown;
  figure.style.height = `${height + grown}px`;
  await window.Plotly.relayout(figure, { height: height + grown, autosize: true }); // or else its width is fixed too
}

// Keeps a figure as wide as its place, and high enough for its legend there.
function watch(figure) {
  const watching = new ResizeObserver(async () => {
    const width = figure.clientWidth;
    if (!width || width === figure._fullLayout.width) return;
    await window.Plotly.Plots.resize(figure);
    await fit(figure);
  });
  watching.observe(figure);
  return watching;
}

// Words in lines of so many letters.
function lines(text, most) {
  const all = [""];
  for (const word of text.split(" ")) {
    if (all.at(-1) && all.at(-1).length + word.length >= most) all.push("");
    all.push(`${all.pop()} ${word}`.trim());
  }
  return all;
}

// A figure as it is saved: on the page's background, which a picture does not have, and with a caption below, since it
// leaves behind the settings it stands for.
function captioned({ data, layout, clientWidth: width, picture }) {
  const size = 11, line = 15, all = lines(picture.caption, (width - 16) / (0.58 * size)), below = all.length * line + 14;
  const text = all.join("<br>").replaceAll("&", "&amp;").replaceAll(/<(?!br>)/g, "&lt;");
  const height = layout.height + below, margin = { ...layout.margin, b: layout.margin.b + below };
  const corner = { x: 0, xref: "container", y: (below - 8) / height, yref: "container", yanchor: "top", pad: { l: 8 } };
  const title = { text, font: { size }, ...corner };
  return { data, layout: { ...layout, title, width, height, margin, paper_bgcolor: picture.background } };
}

// The only button of a figure.
let saving;

function buttons({ Icons, downloadImage }) {
  saving ??= {
    name: "save",
    title: "Download plot as a PNG",
    icon: Icons.camera,
    click: (figure) => downloadImage(captioned(figure), { filename: figure.picture.filename, format: "png", scale: 2 }),
  };
  return [[saving]];
}

// Draws what it is given, as high as an earlier legend made the figure.
async function draw(figure, { data, layout }, { config, picture, clickable }, setTriggerValue) {
  figure.drawn = { height: layout.height, margin: layout.margin };
  layout.height += figure.grown ?? 0;
  figure.picture = picture;
  if (!figure._fullLayout) figure.replaceChildren(); // words may have stood in for it
  await window.Plotly.react(figure, data, layout, { ...config, modeBarButtons: buttons(window.Plotly) });
  await fit(figure);
  if (!figure._fullLayout) return; // taken down meanwhile
  figure.removeAllListeners("plotly_click");
  if (clickable) {
    figure.on("plotly_click", ({ points: [point] }) => {
      if (!figure.scrolled) setTriggerValue("point", point.customdata ?? point.data.meta);
    });
  }
  figure.watch ??= watch(figure);
}

// Drawings of a figure wait for each other, and those overtaken meanwhile are left out.
function inTurn(figure, drawing) {
  figure.newest = drawing;
  figure.turn = Promise.resolve(figure.turn)
    .catch(() => {}) // that drawing has reported it
    .then(() => figure.newest === drawing && figure.isConnected && drawing());
  return figure.turn;
}

export default async function ({ data, parentElement, setTriggerValue }) {
  const given = JSON.parse(data.figure);
  const figure = parentElement.querySelector("[role=figure]") ?? place(parentElement);
  figure.setAttribute("aria-label", data.alt);
  figure.style.height = `${given.layout.height + (figure.grown ?? 0)}px`; // so that nothing moves before it is drawn
  try {
    await plotly();
  } catch {
    loading = undefined; // the next change tries again
    figure.textContent = data.alt;
    return;
  }
  await inTurn(figure, () => draw(figure, given, data, setTriggerValue));
  return () => {
    if (figure.isConnected) return; // this change alone is over: the next is being drawn, in the same place
    figure.watch?.disconnect();
    window.Plotly.purge(figure);
  };
}
