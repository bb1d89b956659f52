// A button that copies a text and says so.

// Browsers keep the clipboard from pages that came without TLS; what is selected there can still be copied.
function copySelected(text) {
  const shown = Object.assign(document.createElement("textarea"), { value: text });
  document.body.append(shown);
  shown.select();
  const copied = document.execCommand("copy");
  shown.remove();
  return copied;
}

export default function ({ data: { text }, parentElement }) {
  const button = parentElement.querySelector("button");
  const said = (words) => (button.textContent = words);
  said("Copy link");
  button.onclick = async () => {
    const copied = window.isSecureContext
      ? await navigator.clipboard.writeText(text).then(() => true, () => false)
      : copySelected(text);
    said(copied ? "Copied" : "Not copied: select it and press Ctrl+C");
    setTimeout(said, 2000, "Copy link");
  };
}
