"""Finds what can be changed in a C++ file, and writes the file with all changes in it, each behind a number (mutation.h)."""

import bisect
import dataclasses
import re

from clang import cindex
from clang.cindex import CursorKind as K
from clang.cindex import TypeKind

# operator: the function of mutation.h, and what takes its place
RELATIONS = {"<": ("less", ("<=", ">=")), "<=": ("less_or_equal", ("<", ">")), ">": ("greater", (">=", "<=")),
             ">=": ("greater_or_equal", (">", "<")), "==": ("equal", ("!=",)), "!=": ("unequal", ("==",))}
ARITHMETIC = {"+": ("plus", ("-",)), "-": ("minus", ("+",)), "*": ("times", ("/",)), "/": ("divided", ("*",)),
              "%": ("rest", ("*",)), "<<": ("shifted_left", (">>",)), ">>": ("shifted_right", ("<<",)),
              "&": ("bits_of_both", ("|",)), "|": ("bits_of_either", ("&",)), "^": ("bits_that_differ", ("|",))}
NUMBERS = set(range(TypeKind.BOOL.value, TypeKind.LONGDOUBLE.value + 1))

FUNCTIONS = {K.FUNCTION_DECL, K.CXX_METHOD, K.CONSTRUCTOR, K.DESTRUCTOR, K.CONVERSION_FUNCTION, K.FUNCTION_TEMPLATE}
SCOPES = {K.NAMESPACE, K.CLASS_DECL, K.STRUCT_DECL, K.CLASS_TEMPLATE, K.CLASS_TEMPLATE_PARTIAL_SPECIALIZATION, K.LINKAGE_SPEC,
          K.UNEXPOSED_DECL}
LOOPS = {K.FOR_STMT, K.WHILE_STMT, K.DO_STMT, K.CXX_FOR_RANGE_STMT}
# Constants of the compiler, names, and types (sizeof).
NOT_LOOKED_INTO = {K.STATIC_ASSERT, K.CXX_UNARY_EXPR, K.TYPE_REF, K.TEMPLATE_REF, K.NAMESPACE_REF, K.DECL_REF_EXPR, K.ENUM_DECL,
                   K.PARM_DECL, K.CLASS_DECL, K.STRUCT_DECL, K.USING_DECLARATION, K.TYPE_ALIAS_DECL}
WITHOUT_EFFECT = {"reserve", "shrink_to_fit"}  # only make a program faster or smaller
LOGS = {"log_line", "warn"}  # that they log is tested, what is in the text is not


@dataclasses.dataclass
class Mutant:
    file: str
    line: int
    text: str  # of the line
    change: str
    number: int = 0


@dataclasses.dataclass
class Site:
    """One place in the file, with one mutant or two. {} in an edit stands for the number of the first."""
    mutants: list
    begin: int
    end: int
    opening: bytes
    closing: bytes
    operator: tuple = None  # begin and end of what a comma replaces
    lines: set = None


class Finder:
    def __init__(self, name, path, arguments):
        self.name, self.path = name, str(path)
        self.source = path.read_bytes()
        self.starts = [0] + [match.end() for match in re.finditer(rb"\n", self.source)]
        unit = cindex.Index.create().parse(self.path, arguments, options=cindex.TranslationUnit.PARSE_DETAILED_PROCESSING_RECORD)
        errors = [str(problem) for problem in unit.diagnostics if problem.severity >= cindex.Diagnostic.Error]
        if errors:
            raise SystemExit(f"{name} cannot be read: " + "\n".join(errors[:5]))
        tokens = unit.get_tokens(extent=unit.cursor.extent)
        self.tokens = [(t.extent.start.offset, t.extent.end.offset, t.spelling) for t in tokens
                       if t.kind.name != "COMMENT"]
        self.token_starts = [token[0] for token in self.tokens]
        self.macros = [(c.extent.start.offset, c.extent.end.offset) for c in unit.cursor.get_children()
                       if c.kind == K.MACRO_INSTANTIATION and self.is_here(c)]
        self.sites, self.known = [], set()
        self.find_functions(unit.cursor)
        self.tell_apart()

    # Places in the file.

    def is_here(self, cursor):
        return cursor.location.file is not None and cursor.location.file.name == self.path

    def line_of(self, offset):
        return bisect.bisect_right(self.starts, offset)

    def text(self, begin, end):
        return " ".join(self.source[begin:end].decode().split())

    def tokens_between(self, begin, end):
        first = bisect.bisect_left(self.token_starts, begin)
        return self.tokens[first:bisect.bisect_left(self.token_starts, end)]

    def semicolon_after(self, offset):
        index = bisect.bisect_left(self.token_starts, offset)
        return self.tokens[index] if index < len(self.tokens) and self.tokens[index][2] == ";" else None

    def add(self, cursor, kind, changes, opening, closing, operator=None, end=None):
        begin, end = cursor.extent.start.offset, end or cursor.extent.end.offset
        edges = [begin, end, *(operator or ())]
        if (begin, end, kind) in self.known or any(a < edge < b for a, b in self.macros for edge in edges):
            return
        if any((a, b) == (begin, end) for a, b in self.macros):
            return
        self.known.add((begin, end, kind))
        line = self.line_of(begin)
        text = self.source[self.starts[line - 1]:].split(b"\n", 1)[0].decode().strip()
        mutants = [Mutant(self.name, line, text, change) for change in changes]
        self.sites.append(Site(mutants, begin, end, opening, closing, operator, {self.line_of(edge) for edge in edges}))

    def tell_apart(self):
        """Numbers what would be called the same, from left to right."""
        times = {}
        for site in sorted(self.sites, key=lambda site: (site.begin, -site.end)):
            for mutant in site.mutants:
                name = (mutant.text, mutant.line, mutant.change)
                times[name] = times.get(name, 0) + 1
                if times[name] > 1:
                    mutant.change += f" (number {times[name]})"

    # The way through the file.

    def find_functions(self, cursor):
        for child in cursor.get_children():
            if child.kind in FUNCTIONS:
                if self.is_here(child) and child.is_definition():
                    self.function(child)
            elif child.kind in SCOPES and (cursor.kind != K.TRANSLATION_UNIT or self.is_here(child)):
                self.find_functions(child)

    def function(self, cursor):
        children = list(cursor.get_children())
        body = [child for child in children if child.kind == K.COMPOUND_STMT]
        if not body:
            return  # = default
        head = self.tokens_between(cursor.extent.start.offset, body[-1].extent.start.offset)
        if any(token[2] in ("constexpr", "consteval") for token in head):
            return
        # Such a function must not run over its end, nor may one that never returns.
        self.gives_value = cursor.result_type.kind != TypeKind.VOID and cursor.kind not in (K.CONSTRUCTOR, K.DESTRUCTOR)
        self.gives_value = self.gives_value or self.never_returns(cursor)
        for child in children:
            if child.kind == K.COMPOUND_STMT or child.kind.is_expression() and cursor.kind == K.CONSTRUCTOR:
                self.visit(child, [])

    def never_returns(self, cursor):
        for place in (cursor, cursor.canonical):  # the attribute may be at the declaration only
            with open(place.location.file.name, "rb") as file:
                lines = file.read().splitlines()
            if any(b"[[noreturn]]" in line for line in lines[place.extent.start.line - 2:place.location.line]):
                return True
        return False

    def visit(self, cursor, above):
        """`above`: what it is in, each with its children, the innermost last."""
        kind = cursor.kind
        if kind in NOT_LOOKED_INTO:
            return
        children = list(cursor.get_children())
        below = above + [(cursor, children)]
        if kind == K.LAMBDA_EXPR:
            outer, self.gives_value = self.gives_value, True
            for child in children:
                if child.kind == K.COMPOUND_STMT:
                    self.visit(child, [])
            self.gives_value = outer
            return
        if self.is_statement(cursor, above) and self.statement(cursor, above):
            return
        if kind == K.VAR_DECL:
            children = self.initializer(cursor, children, above)
        elif kind == K.CASE_STMT:
            children = children[1:]
        elif kind in (K.IF_STMT, K.WHILE_STMT):
            if self.tokens_between(cursor.extent.start.offset, cursor.extent.end.offset)[1][2] != "(":
                return  # if constexpr
            condition = self.condition_of(cursor, children)
            if condition is not None and condition.kind == K.CXX_BOOL_LITERAL_EXPR:
                children.remove(condition)  # while (true) has nothing after it where it may end
            else:
                self.condition(condition)
        elif kind == K.CONDITIONAL_OPERATOR and children:
            self.condition(children[0])
        elif kind == K.BINARY_OPERATOR and len(children) == 2:
            self.binary(cursor, children)
        elif kind == K.CALL_EXPR:
            if cursor.spelling in LOGS:
                return
            if cursor.spelling.startswith("operator") and len(children) == 3:
                self.relation(cursor, children[0], children[2])
        elif kind == K.INTEGER_LITERAL:
            self.literal(cursor, "number", r"[0-9][0-9a-fA-FxX']*[uUlLzZ]*", "{0} -> {0} + 1", b"mutation::number({}, ")
        elif kind == K.CXX_BOOL_LITERAL_EXPR:
            self.literal(cursor, "truth", "true|false", "{0} -> the other", b"(mutation::on({}) != ")
        for child in children:
            self.visit(child, below)

    def initializer(self, cursor, children, above):
        """What a variable begins with. Its type and an array's size are constants of the compiler."""
        if above and above[-1][0].kind == K.CXX_FOR_RANGE_STMT:
            return []
        head = self.tokens_between(cursor.extent.start.offset, cursor.location.offset)
        if any(token[2] == "constexpr" for token in head):
            return []
        depth = 0
        for begin, _, spelling in self.tokens_between(cursor.location.offset, cursor.extent.end.offset):
            depth += (spelling == "[") - (spelling == "]")
            if depth == 0 and spelling in ("=", "{", "("):
                return [child for child in children if child.extent.start.offset >= begin]
        return []

    def condition_of(self, cursor, children):
        depth = 0
        for begin, _, spelling in self.tokens_between(cursor.extent.start.offset, cursor.extent.end.offset):
            depth += (spelling == "(") - (spelling == ")")
            if spelling == ")" and depth == 0:
                inside = [child for child in children if child.extent.end.offset <= begin]
                return inside[-1] if inside else None
        return None

    # What can be changed.

    def condition(self, cursor):
        if cursor is None or not cursor.kind.is_expression():
            return
        inner = self.unwrapped(cursor)
        operator = self.operator_of(inner)
        if operator and operator[2] in RELATIONS:
            return  # is changed into its opposite itself
        text = self.text(cursor.extent.start.offset, cursor.extent.end.offset)
        self.add(cursor, "condition", [f"{text} -> not"], b"(mutation::on({}) != static_cast<bool>(", b"))")

    def unwrapped(self, cursor):
        while cursor.kind in (K.UNEXPOSED_EXPR, K.PAREN_EXPR):
            children = list(cursor.get_children())
            if len(children) != 1:
                break
            cursor = children[0]
        return cursor

    def operator_of(self, cursor):
        children = list(cursor.get_children())
        if cursor.kind == K.BINARY_OPERATOR and len(children) == 2:
            return self.operator_between(children[0], children[1])
        if cursor.kind == K.CALL_EXPR and cursor.spelling.startswith("operator") and len(children) == 3:
            return self.operator_between(children[0], children[2])
        return None

    def operator_between(self, left, right):
        between = self.tokens_between(left.extent.end.offset, right.extent.start.offset)
        return between[0] if len(between) == 1 else None

    def binary(self, cursor, children):
        operator = self.operator_between(*children)
        if not operator:
            return
        if operator[2] in ("&&", "||"):
            self.both_or_either(operator[2], children)
        elif operator[2] in RELATIONS:
            self.relation(cursor, *children)
        elif operator[2] in ARITHMETIC and self.is_arithmetic(operator[2], children):
            self.change_operator(cursor, operator, *ARITHMETIC[operator[2]])

    def both_or_either(self, operator, operands):
        for operand in operands:
            inner = self.operator_of(self.unwrapped(operand))
            if inner and inner[2] == operator and self.unwrapped(operand).extent == operand.extent:
                continue  # its own operands are changed
            text = self.text(operand.extent.start.offset, operand.extent.end.offset)
            opening = b"(mutation::on({}) || (" if operator == "&&" else b"(!mutation::on({}) && ("
            self.add(operand, "operand", [f"{text} -> {'true' if operator == '&&' else 'false'}"], opening, b"))")

    def relation(self, cursor, left, right):
        operator = self.operator_between(left, right)
        if operator and operator[2] in RELATIONS:
            self.change_operator(cursor, operator, *RELATIONS[operator[2]])

    def is_arithmetic(self, operator, operands):
        kinds = [operand.type.get_canonical().kind for operand in operands]
        pointers = kinds.count(TypeKind.POINTER)
        others = [kind for kind in kinds if kind != TypeKind.POINTER]
        return all(kind.value in NUMBERS for kind in others) and (pointers == 0 or pointers == 1 and operator in "+-")

    def change_operator(self, cursor, operator, function, others):
        text = self.text(cursor.extent.start.offset, cursor.extent.end.offset)
        self.add(cursor, "operator", [f"{text}: {operator[2]} -> {other}" for other in others],
                 b"mutation::%s({}, " % function.encode(), b")", operator[:2])

    def literal(self, cursor, kind, pattern, change, opening):
        text = self.text(cursor.extent.start.offset, cursor.extent.end.offset)
        if re.fullmatch(pattern, text):
            self.add(cursor, kind, [change.format(text)], opening, b")")

    # Statements that are left out.

    def is_statement(self, cursor, above):
        if not above:
            return False
        parent, children = above[-1]
        if parent.kind == K.COMPOUND_STMT:
            return True
        if parent.kind == K.IF_STMT:
            condition = self.condition_of(parent, children)
            return condition is not None and cursor.extent.start.offset > condition.extent.end.offset
        if parent.kind == K.DO_STMT:
            return cursor == children[0]
        return parent.kind in LOOPS | {K.CASE_STMT, K.DEFAULT_STMT} and cursor == children[-1]

    def statement(self, cursor, above):
        """Returns whether what is in the statement stays as it is."""
        inner = self.unwrapped(cursor)
        end = cursor.extent.end.offset
        text = "without " + self.text(cursor.extent.start.offset, end)
        if inner.kind == K.CALL_EXPR and inner.spelling in WITHOUT_EFFECT:
            return True
        if not self.semicolon_after(end):
            return False
        if inner.kind in (K.RETURN_STMT, K.CONTINUE_STMT, K.BREAK_STMT):
            in_switch = inner.kind == K.BREAK_STMT and any(parent.kind == K.SWITCH_STMT for parent, _ in above)
            if self.goes_on(cursor, above) and not in_switch:
                self.add(cursor, "statement", [text], b"{ if (!mutation::on({})) ", b" }", end=self.semicolon_after(end)[1])
            return False
        operator = self.operator_of(inner)
        tokens = self.tokens_between(inner.extent.start.offset, end)
        steps = inner.kind == K.UNARY_OPERATOR and (tokens[0][2] in ("++", "--") or tokens[-1][2] in ("++", "--"))
        assigns = inner.kind == K.BINARY_OPERATOR and operator is not None and operator[2] == "="
        if inner.kind in (K.CALL_EXPR, K.COMPOUND_ASSIGNMENT_OPERATOR, K.CXX_THROW_EXPR) or steps or assigns:
            if self.goes_on(cursor, above) or not self.gives_value:
                self.add(cursor, "statement", [text], b"(mutation::on({}) ? void() : void(", b"))")
        return False

    def goes_on(self, cursor, above):
        """Whether something comes after the statement, so that leaving it out does not run over the end of a function with a result."""
        for parent, children in reversed(above):
            if parent.kind in LOOPS:
                return True
            if parent.kind == K.COMPOUND_STMT and children[-1] != cursor:
                return True
            cursor = parent
        return False


def rewritten(source, sites):
    edits = []
    for order, site in enumerate(sites):
        number = str(site.mutants[0].number).encode()
        length = site.end - site.begin
        edits.append((site.begin, 1, -length, order, site.begin, site.opening.replace(b"{}", number)))
        edits.append((site.end, 0, length, -order, site.end, site.closing))
        if site.operator:
            edits.append((site.operator[0], 2, 0, 0, site.operator[1], b","))
    out, at = [], 0
    for begin, _, _, _, end, text in sorted(edits):
        out += [source[at:begin], text]
        at = end
    return b"".join(out) + source[at:]
