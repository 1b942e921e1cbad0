"""All styles, by name, in the order of the published table."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from restyling import blocks, calls, flags, imports, names, noise, objects
from restyling.program import Program

Style = Callable[[Program], Program]


def unchanged(program: Program) -> Program:
    """The program as it stands: what the way of counting gives without any rewrite."""
    return program


STYLES: Mapping[str, Style] = MappingProxyType(
    {
        style.__name__.replace("_", "-"): style
        for style in (
            unchanged,
            names.neutral_locals,
            names.neutral_locals_called,
            names.neutral_attributes,
            names.no_annotations,
            blocks.helper_here,
            blocks.helper_elsewhere,
            blocks.plain_second_file,
            blocks.callback,
            blocks.overridden_method,
            blocks.in_with,
            blocks.in_try,
            imports.import_module,
            imports.import_alias,
            imports.import_names,
            imports.import_reexport,
            imports.import_star,
            imports.import_attribute,
            objects.built_as_tuple,
            objects.built_as_dict,
            objects.built_as_dataclass,
            objects.attribute_chain,
            objects.wrapper_class,
            objects.in_sequential,
            objects.in_module_list,
            objects.moved_in_constructor,
            calls.keyword_arguments,
            calls.positional_arguments,
            calls.star_arguments,
            calls.dict_arguments,
            calls.partial,
            flags.flags_from_dataclass,
            flags.flags_from_argparse,
            flags.flags_from_click,
            flags.flags_from_dict,
            flags.flags_from_yaml,
            flags.flags_from_constants,
            flags.flags_from_module,
            noise.comments,
            noise.docstrings,
            noise.dead_code,
        )
    }
)
