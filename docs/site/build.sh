#!/usr/bin/env bash
# Builds the site from docs/*.md, README.md and the references; a warning, a broken link or a missing anchor is an error.
#
#   docs/site/build.sh [BUILD_FOLDER]                       # build-test, unless another is named
#   docs/site/build.sh --without-references [BUILD_FOLDER]  # any folder, even an empty one: a minute, and nothing is compiled
#   docs/site/build.sh --serve ...                          # then shows it on 127.0.0.1:8000, and builds again what is edited
#
# The references are built by docs/reference/build.sh if BUILD_FOLDER/reference is missing or older than what they are made from.
# Result: BUILD_FOLDER/site/index.html
set -euo pipefail
root=$(realpath "$(dirname "$0")/../..")
build=$root/build-test references=1 serve=0
for argument in "$@"; do
  case "$argument" in
    --without-references) references=0 ;;
    --serve) serve=1 ;;
    -*) echo "build.sh: unknown option $argument (--without-references, --serve)" >&2; exit 2 ;;
    *) build=$argument ;;
  esac
done
mkdir -p "$build"
build=$(realpath "$build")
cd "$root"

export NO_MKDOCS_2_WARNING=1  # of Material, whose successor README.md speaks of
export SITE=$build/site REFERENCES=
if [ $references = 1 ]; then
  REFERENCES=$build/reference
  made=$REFERENCES/csharp/index.html  # the last one
  if [ ! -e "$made" ] || [ -n "$(find docs/reference capi/include bindings -type f -newer "$made" -print -quit)" ]; then
    bash docs/reference/build.sh "$build" || { echo "build.sh: docs/site/build.sh --without-references leaves them out" >&2; exit 2; }
  fi
else
  echo "build.sh: THE REFERENCES ARE LEFT OUT: no options, no command line, no API of any language" >&2
fi

venv=$build/site-venv
if ! cmp -s docs/site/requirements.txt "$venv/requirements.txt"; then
  python3 -m venv --clear "$venv"
  PIP_NO_CACHE_DIR=1 "$venv/bin/pip" install -q --disable-pip-version-check -r docs/site/requirements.txt
  cp docs/site/requirements.txt "$venv"
fi
if [ $serve = 1 ]; then exec "$venv/bin/mkdocs" serve --strict -f docs/site/mkdocs.yml -a 127.0.0.1:8000; fi
"$venv/bin/mkdocs" build --strict -f docs/site/mkdocs.yml
ls "$SITE/index.html"
