"""The browser's history: one entry for what one click changes, and whether this run was caused by Back or Forward.

Streamlit writes the value of a bound widget into the address when that widget is run, which makes an entry of each, and
has no public name for either of the two; what is used of it stands here and nowhere else.
"""

from collections.abc import Mapping

from streamlit.runtime.scriptrunner import get_script_run_ctx


def gone_through() -> bool:
    """Whether Back or Forward caused this run, so that widgets will take what the address says."""
    context = get_script_run_ctx()
    return context is not None and context.is_history_navigation


def enter(settings: Mapping[str, str]) -> None:
    """Write several settings into the address at once, before their widgets do so one by one.

    Args:
        settings: by key, as links write them; without a text they leave the address.
    """
    context = get_script_run_ctx()
    if context is None:
        return
    with context.session_state.query_params() as address:
        before = {key: address.get_all(key) for key in address}
        for key, text in settings.items():
            if text:
                address.set_with_no_forward_msg(key, text)
            else:
                address.discard_param_no_forward_msg(key)
        if before != {key: address.get_all(key) for key in address}:
            address._send_query_param_msg()
