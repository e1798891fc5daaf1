#!/bin/sh
# Compares the exported API of the tree with that of the last release: the newest tag, or, while there
# is none, the commit that CHANGELOG.md names in the heading of that release. It prints what a program
# may have to change, and fails if the first section of CHANGELOG.md does not name it, as `package.Name`.
#
#     integration/release/api.sh APIDIFF
set -eu
apidiff="$1"
cd "$(dirname "$0")/../.."
base="$(git describe --tags --abbrev=0 --match 'v[0-9]*' 2> /dev/null || sed -n 's/^## [0-9.]* (commit \([0-9a-f]*\).*/\1/p' CHANGELOG.md | head -1)"
if ! git cat-file -e "$base^{commit}" 2> /dev/null; then
	echo "NOT RUN: the comparison of the API, this clone has no $base; git fetch --unshallow --tags" >&2
	exit 0
fi
dir="$(mktemp -d)"
trap 'rm -rf "$dir"' EXIT
mkdir "$dir/tree" "$dir/api"
git archive "$base" | tar -x -C "$dir/tree"

# packages are those of the tree that programs may import.
packages() {
	find . -name go.mod | sort | while read -r mod; do
		case "$mod" in ./bench/*|./cmd/*|./examples/*|./integration/*|./tests/*) continue ;; esac
		go -C "$(dirname "$mod")" list ./...
	done | grep -vE '/(internal|promtest|examples|tests|cmd)(/|$)'
}

(cd "$dir/tree" && packages | while read -r p; do "$apidiff" -w "$dir/api/$(echo "$p" | tr / _)" "$p"; done)
packages > "$dir/now"
for old in "$dir"/api/*; do
	p="$(tr / _ < "$dir/now" | grep -nx "$(basename "$old")" | cut -d: -f1)"
	[ -n "$p" ] || { echo "$(basename "$old" | tr _ /): removed" >> "$dir/gone"; continue; }
	p="$(sed -n "${p}p" "$dir/now")"
	"$apidiff" -incompatible "$old" "$p" | sed -n "s|^- \(.*\)|$(basename "$p").\1|p"
done > "$dir/changes"
[ ! -e "$dir/gone" ] || cat "$dir/gone" >> "$dir/changes"
echo "the exported API, compared with $base: $(wc -l < "$dir/changes") incompatible changes"
cat "$dir/changes"

awk '/^## [0-9]/ { n++ } n == 1' CHANGELOG.md > "$dir/section"
missing=
while IFS= read -r line; do
	name="$(echo "${line%%:*}" | sed 's/\.(\*\(.*\))/.\1/')"
	grep -qF "\`$name\`" "$dir/section" || missing="$missing $name"
done < "$dir/changes"
[ -z "$missing" ] || { echo "CHANGELOG.md does not name:$missing" >&2; exit 1; }
