"""Command lines: the project's own parser parses what the decisions of a run ask for.

Python's argparse is the real one, with the project's groups, types, actions and overrides. Only
the words that a user would have typed are made up, from the decisions about the options. What
the parser refuses is refused.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any, ClassVar

from amplint.probe.messages import OPTIONS, path_of_option
from amplint.probe.worker import standins, words
from amplint.probe.worker.context import Run, current
from amplint.probe.worker.decisions import GIVEN
from amplint.probe.worker.replacing import replace

#: What may be typed for an option of which nothing else is known.
SAMPLES = ("x", "1", "0.5", "true")
#: Values that a user types for a number that is missing.
NUMBERS: dict[Any, str] = {int: "1", float: "1.0"}
#: How a run tells that the parser has refused what it was given.
REFUSED = "the command line is refused"
_NOTHING: Any = object()


class Arguments(list):  # type: ignore[type-arg]
    """`sys.argv` of a run, and its parts."""

    def __getitem__(self, index: Any) -> Any:
        if isinstance(index, slice):
            return Arguments(super().__getitem__(index))
        # Who reads one of them without a parser gets a word.
        return super().__getitem__(index) if index < len(self) else f"word-{index}"


@dataclass(frozen=True, slots=True)
class Setting:
    """One option: its path, and the values it may be given, its default first."""

    path: str
    values: tuple[Any, ...]


class Options(argparse.Namespace):
    """What a parser returns; an option is a decision of the run from when it is first read."""

    _amp_root = OPTIONS
    _amp_settings: ClassVar[dict[str, Setting]] = {}

    def __getattribute__(self, name: str) -> Any:
        settings = type(self)._amp_settings
        if name in settings:
            _decided(settings[name])
        elif name == "__dict__":
            for setting in settings.values():
                _decided(setting)
        return super().__getattribute__(name)


def _decided(setting: Setting) -> None:
    if len(setting.values) > 1:
        current().choose(setting.path, setting.values, "option")


def install(run: Run) -> None:
    """Let parsers parse the decisions of this run."""
    kind = argparse.ArgumentParser
    parse, init, add, error = kind.parse_known_args, kind.__init__, kind.add_argument, kind.error

    def parse_known_args(self: Any, args: Any = None, namespace: Any = None) -> Any:
        if args is not None and not isinstance(args, (Arguments, standins.StandIn)):
            return parse(self, args, namespace)
        settings = dict(_settings(run, self))
        typed = list(_typed(run, self, settings))
        if namespace is not None:
            return parse(self, typed, namespace)
        found, rest = parse(self, typed, Options())
        found.__class__ = type("Namespace", (Options,), {"_amp_settings": settings})
        return found, rest

    def new_init(self: Any, *args: Any, **kwargs: Any) -> None:
        known = {key: value for key, value in kwargs.items() if not _is_unknown(value)}
        if "parents" in known:
            known["parents"] = [item for item in known["parents"] if not _is_unknown(item)]
        given: list[Any] = [None if _is_unknown(value) else value for value in args]
        init(self, *given, **known)

    def refuse(self: Any, message: str) -> Any:
        run.remark(f"{REFUSED}: {message}")
        return error(self, message)

    def add_argument(self: Any, *names: Any, **settings: Any) -> Any:
        if _is_unknown(settings.get("action")):
            del settings["action"]
        settings = {
            key: value for key, value in settings.items() if key != "choices" or _all(value)
        }
        names = tuple(name for name in names if not _is_unknown(name))
        return add(self, *names, **settings)

    replace(kind, "parse_known_args", parse_known_args)
    replace(kind, "__init__", new_init)
    replace(kind, "error", refuse)
    container = argparse._ActionsContainer
    replace(container, "add_argument", add_argument)


def _is_unknown(value: Any) -> bool:
    return isinstance(value, standins.StandIn)


def _all(choices: Any) -> bool:
    """Whether all choices are known."""
    return not _is_unknown(choices) and not any(map(_is_unknown, choices))


# -- what an option may be -------------------------------------------------------------------------


def _settings(run: Run, parser: argparse.ArgumentParser) -> Iterator[tuple[str, Setting]]:
    """Attribute -> setting, those of subcommands included."""
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for inner in dict.fromkeys(action.choices.values()):
                yield from _settings(run, inner)
        elif action.dest not in (argparse.SUPPRESS, "help", "version"):
            default = parser._defaults.get(action.dest, action.default)
            path = path_of_option(action.dest)
            values = tuple(_unique(_values(run, action, default, path)))
            if all(map(_is_plain, values)):
                yield action.dest, Setting(path, values)


def _values(run: Run, action: argparse.Action, default: Any, path: str) -> Iterator[Any]:
    if default is argparse.SUPPRESS or _is_unknown(default):
        default = None
    if isinstance(action, (argparse._StoreConstAction, argparse._CountAction)):
        yield default
        yield getattr(action, "const", None) if action.nargs == 0 else 1
        return
    if isinstance(action, argparse.BooleanOptionalAction) or isinstance(default, bool):
        yield bool(default)
        yield not default
        return
    if isinstance(default, str) and action.type in (int, float):
        default = action.type(default)
    convert = _to_truth(action)
    if convert is not None:
        if isinstance(default, str):
            default = convert(default)
        yield default
        yield from (True, False)
        return
    yield default
    if action.choices is not None:
        yield from action.choices
        return
    use = run.use(path)
    if action.nargs not in (None, "?") or not (use.truth or use.compared or use.none):
        yield from run.decisions.known_for(action.dest, type(default))
        return
    if action.type in (int, float):
        known = (n for n in words.numbers_for(path) if action.type is float or type(n) is int)
        yield from (action.type(number) for number in known)
        yield from (n for n in use.compared if type(n) in (int, float))
    elif action.type in (None, str):
        yield from (text for text in use.compared if isinstance(text, str))
        if default is None:
            yield "other"


def _to_truth(action: argparse.Action) -> Callable[[str], Any] | None:
    """An option's type, if that is a function that makes truth values of texts."""
    convert = action.type
    if convert in (None, str, int, float, bool) or not callable(convert):
        return None
    try:
        return convert if type(convert("True")) is bool else None
    except Exception:  # noqa: BLE001 -- whatever the project's function raises
        return None


def _is_plain(value: Any) -> bool:
    return value is None or isinstance(value, (bool, int, float, str))


def _unique(values: Iterator[Any]) -> Iterator[Any]:
    seen = set()
    for value in values:
        key = (type(value), value if _is_plain(value) else repr(value))
        if key not in seen:
            seen.add(key)
            yield value


# -- what a user types -----------------------------------------------------------------------------


def _typed(
    run: Run, parser: argparse.ArgumentParser, settings: dict[str, Setting]
) -> Iterator[str]:
    """The words of a command line that asks for what the run has decided."""
    last: list[str] = []
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            names = tuple(action.choices)
            if names:
                name = run.choose(path_of_option(_command(action)), names, "option")
                last = [name, *_typed(run, action.choices[name], settings)]
            continue
        wanted = _wanted(run, settings.get(action.dest))
        typed = _words_for(parser, action, wanted)
        if action.option_strings:
            yield from typed
        else:
            last = [*last, *typed]
    for group in parser._mutually_exclusive_groups:
        yield from _required_of(run, group, settings)
    yield from last


def _command(action: Any) -> str:
    return "command" if action.dest is argparse.SUPPRESS else str(action.dest)


def _wanted(run: Run, setting: Setting | None) -> Any:
    """What a run asks an option to be; `_NOTHING` if it leaves it alone."""
    if setting is None:
        return _NOTHING
    known, value = run.decisions.asked(setting.path)
    if not known:
        return _NOTHING
    if value is GIVEN:
        value = next((option for option in setting.values if option is not None), None)
    if len(setting.values) == 1 and value in setting.values:
        return value
    return run.choose(setting.path, setting.values, "option")


def _required_of(run: Run, group: Any, settings: dict[str, Setting]) -> Iterator[str]:
    """One of a group of which one is needed, unless the run asks for any."""
    if not group.required or any(
        _wanted(run, settings.get(action.dest)) not in (_NOTHING, action.default)
        for action in group._group_actions
    ):
        return
    yield from _words_for(None, group._group_actions[0], True)


def _words_for(parser: Any, action: argparse.Action, wanted: Any) -> list[str]:
    flags = action.option_strings
    long = next((flag for flag in flags if flag.startswith("--")), flags[0] if flags else "")
    needed = action.required and action.default is None
    if isinstance(action, (argparse._HelpAction, argparse._VersionAction)):
        return []
    if isinstance(action, argparse.BooleanOptionalAction):
        off = next((flag for flag in flags if flag.startswith("--no-")), long)
        return [] if wanted is _NOTHING else [long if wanted else off]
    if isinstance(action, argparse._CountAction) or action.nargs == 0:
        const = getattr(action, "const", True)
        given = wanted is not _NOTHING and (wanted == const and wanted != action.default)
        return [long] if given or (needed and flags) else []
    if wanted is _NOTHING or wanted is None:
        if not needed and (flags or action.nargs in ("?", "*")):
            return []
        if not flags and action.default is not None and action.nargs in ("?", "*"):
            return []
        wanted = _sample(parser, action)
    count = action.nargs if isinstance(action.nargs, int) else 1
    if not flags:
        return [str(wanted)] * count
    return (
        [f"{long}={wanted}"]
        if count == 1 and action.nargs is None
        else [long, *[str(wanted)] * count]
    )


def _sample(parser: Any, action: argparse.Action) -> Any:
    """Something that an option takes."""
    if action.choices:
        return next(iter(action.choices))
    if action.type in NUMBERS:
        return NUMBERS[action.type]
    for text in SAMPLES:
        try:
            parser._get_value(action, text)
        except argparse.ArgumentError:
            continue
        return text
    return SAMPLES[0]


# -- click -----------------------------------------------------------------------------------------


def install_click(run: Run, click: Any) -> None:
    """Let the commands of click, where it is installed, parse the decisions of this run."""
    main = click.Command.main

    def new_main(self: Any, args: Any = None, *rest: Any, **settings: Any) -> Any:
        typed = list(_typed_for(run, self)) if args is None else args
        settings.setdefault("prog_name", "main.py")
        return main(self, typed, *rest, **settings)

    replace(click.Command, "main", new_main)


def is_command(thing: Any) -> bool:
    """Whether calling something parses a command line."""
    return type(thing).__module__.partition(".")[0] == "click" and hasattr(thing, "params")


def _typed_for(run: Run, command: Any) -> Iterator[str]:
    last: list[str] = []
    for parameter in command.params:
        flags = [*parameter.opts, *parameter.secondary_opts]
        is_option = flags[0].startswith("-")
        wanted = _chosen(run, parameter)
        if wanted is _NOTHING or wanted is None:
            if not parameter.required or parameter.default is not None:
                continue
            wanted = _sample_of(parameter)
        if getattr(parameter, "is_flag", False):
            if bool(wanted) is not bool(_default_of(parameter)):
                yield (parameter.opts if wanted else parameter.secondary_opts or parameter.opts)[-1]
        elif is_option:
            yield from (parameter.opts[-1], str(wanted))
        else:
            last.append(str(wanted))
    for name, inner in getattr(command, "commands", {}).items():
        last = [*last, name, *_typed_for(run, inner)]
        break
    yield from last


def _chosen(run: Run, parameter: Any) -> Any:
    path, default = parameter.name, _default_of(parameter)
    use = run.use(path)
    values: tuple[Any, ...] = (default,)
    choices = getattr(parameter.type, "choices", None)
    if getattr(parameter, "is_flag", False):
        values = (bool(default), not default)
    elif choices:
        values = tuple(_unique(iter((default, *choices))))
    elif parameter.type.name in ("integer", "float") and (use.truth or use.none or use.compared):
        kind = int if parameter.type.name == "integer" else float
        values = (default, *(kind(n) for n in words.numbers_for(path) if n != default))
    elif use.none or use.compared:
        texts = [text for text in use.compared if isinstance(text, str)]
        values = (default, *(texts or ["other"]))
    asked, wanted = run.decisions.asked(path)
    if asked:
        wanted = _sample_of(parameter) if wanted is GIVEN else wanted
        values = (*values, wanted)
    values = tuple(_unique(iter(values)))
    if asked and wanted is not None and len(values) > 1 and all(map(_is_plain, values)):
        return run.decisions.take(path, values, wanted, "option")
    if len(values) > 1 and all(map(_is_plain, values)):
        return run.choose(path, values, "option")
    return _NOTHING


def _sample_of(parameter: Any) -> Any:
    """Something that a parameter of click takes."""
    choices = getattr(parameter.type, "choices", None)
    if choices:
        return next(iter(choices))
    return {"integer": 1, "float": 1.0, "boolean": True}.get(parameter.type.name, SAMPLES[0])


def _default_of(parameter: Any) -> Any:
    default = parameter.default
    return default if _is_plain(default) else None
