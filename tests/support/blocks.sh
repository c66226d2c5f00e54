# Sourced by scripts that run code blocks of the pages, as they are printed.

# block PAGE TEXT: the block of the page with a line that begins with TEXT.
block() {
  awk -v text="$2" '
    /^```/ {if (found) exit; inside = !inside; body = ""; next}
    inside {body = body $0 "\n"; found += index($0, text) == 1}
    END {printf "%s", found ? body : ""; exit !found}' "$1" || { echo "$1 has no block with a line that begins with '$2'" >&2; return 1; }
}

# run_block PAGE TEXT: runs it in this shell.
run_block() {
  local script
  script=$(block "$@") || return 1
  echo "== $1" >&2
  printf '%s\n' "$script" >&2
  eval "$script"
}
