#!/usr/bin/env python3
"""Writes native.pyi, the types of what SWIG makes of bindings/swig/facade.h, from the C++ types that SWIG leaves in native.py.

    stub.py native.py native.pyi
"""

import ast
import pathlib
import re
import sys

HEAD = '''\
"""What SWIG makes of bindings/swig/facade.h, for the package alone. Not a public interface.

Vectors are returned as tuples, but for that of devices. SWIG's other classes for vectors, which nothing uses, are left
out."""
# Written by stub.py from native.py.

from typing import Callable, Iterator, Optional, Sequence, Tuple, overload, type_check_only

from typing_extensions import CapsuleType, Never, Self

@type_check_only
class _Field:  # of python.i
    @property
    def __array_struct__(self) -> CapsuleType: ...
    @property
    def shape(self) -> Tuple[int, ...]: ...
    @property
    def dtype(self) -> int: ...
    @property
    def address(self) -> int: ...

'''
# What the C++ types do not say: None, overloads, Python objects, and classes that are not ours.
BY_HAND = {
    "SwigPyIterator": "",
    "Strings": "",
    "Extents": "",
    "Devices": """\
class Devices:
    def __iter__(self) -> Iterator[DeviceInfo]: ...
""",
    "echotrain_set_error_factory": """\
def echotrain_set_error_factory(factory: Callable[[int, str], BaseException]) -> None: ...
""",
    "echotrain_field_of": "def echotrain_field_of(batch: BatchHandle, field: str) -> _Field: ...\n",
    "echotrain_dlpack_capsule": "def echotrain_dlpack_capsule(batch: BatchHandle, field: str) -> CapsuleType: ...\n",
    "echotrain_wrap_object": """\
def echotrain_wrap_object(
    batch: BatchHandle, field: str, dtype: int, shape: Sequence[int], address: int, owner: object
) -> None: ...
""",
    "TransportCall.__init__": "    def __init__(self, *args: Never, **kwargs: Never) -> None: ...\n",
    "PipelineHandle.next": "    def next(self) -> Optional[BatchHandle]: ...\n",
    "PipelineHandle.poll": "    def poll(self, seconds: float) -> Optional[BatchHandle]: ...\n",
    "RunHandle.__init__": """\
    @overload
    def __init__(self, runtime: RuntimeHandle, job: JobHandle, start: int, /) -> None: ...
    @overload
    def __init__(
        self, runtime: RuntimeHandle, job: JobHandle, start: int, rank: int, size: int, transport: Transport, /
    ) -> None: ...
""",
}
# Parameters have the names of SWIG's classes, results those of C++.
TYPES = {"void": "None", "bool": "bool", "int": "int", "int64_t": "int", "uint64_t": "int", "double": "float", "std::string": "str",
         "Strings": "Sequence[str]", "std::vector<std::string>": "Tuple[str, ...]",
         "Extents": "Sequence[int]", "std::vector<long long>": "Tuple[int, ...]",
         "std::vector<DeviceInfo>": "Devices", "Progress": "Optional[Progress]"}


class Stub:
    def __init__(self, module):
        self.left = dict(BY_HAND)
        self.classes = {node.name for node in module.body if isinstance(node, ast.ClassDef)}
        self.text = HEAD + "".join(self.of(node, "") for node in module.body)
        if self.left:
            raise SystemExit(f"stub.py: BY_HAND has {', '.join(self.left)}, which native.py has not")

    def of(self, node, scope):
        """The lines of a node of the module, or of the class `scope`."""
        indent = "    " if scope else ""
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            name = f"{scope}.{node.name}" if scope else node.name
            if name in BY_HAND:
                return self.left.pop(name)
            if isinstance(node, ast.FunctionDef):
                return "" if node.name.startswith("_swig") else self.function(node, name, indent)
            if node.name.startswith("_Swig"):
                return ""
            return f"class {name}:\n" + "".join(self.of(child, name) for child in node.body) + "\n"
        if isinstance(node, ast.AnnAssign):
            return f"{indent}{node.target.id}: {self.type(node.annotation, node.target.id)}\n"
        if scope and isinstance(node, ast.Assign) and isinstance(node.value, ast.Attribute) and not node.targets[0].id.startswith("_"):
            return f"{indent}{node.targets[0].id}: int\n"  # of an enum
        return ""

    def function(self, node, name, indent):
        if node.args.vararg:
            raise SystemExit(f"stub.py: {name} is overloaded; add it to BY_HAND")
        is_static = any(isinstance(each, ast.Name) and each.id == "staticmethod" for each in node.decorator_list)
        parameters = [each.arg if each.arg == "self" else f"{each.arg}: {self.type(each.annotation, name)}" for each in node.args.args]
        result = {"__init__": "None", "__disown__": "Self"}.get(node.name) or self.type(node.returns, name)
        return f"{indent}@staticmethod\n" * is_static + f"{indent}def {node.name}({', '.join(parameters)}) -> {result}: ...\n"

    def type(self, annotation, name):
        given = annotation.value if isinstance(annotation, ast.Constant) else "no type"
        short = re.sub(r"echotrain::facade::|( const)? [&*]$|,std::allocator< .* >(?= >)", "", given)
        short = re.sub(r"< (.*) >", r"<\1>", short)
        if short not in TYPES and short not in self.classes:
            raise SystemExit(f"stub.py: {name} has '{given}'; add its Python type to TYPES, or {name} to BY_HAND")
        return TYPES.get(short, short)


if __name__ == "__main__":
    pathlib.Path(sys.argv[2]).write_text(Stub(ast.parse(pathlib.Path(sys.argv[1]).read_text())).text, encoding="utf-8")
