#!/bin/sh
# Makes VERSION (v1.2.3) the release that the tree becomes: in the names that the modules refer to
# (internal/onerelease), and in what the modules require of each other.
#
#     integration/release/raise.sh VERSION [TREE]
set -eu
new="$1"
cd "${2:-$(dirname "$0")/../..}"
old="$(sed -n 's/^const GoGet_.* = "\(.*\)"$/\1/p' internal/onerelease/onerelease.go)"
name() { echo "$1" | tr '.+-' '___'; }
grep -rl --include=release.go --include=onerelease.go --include=modules_test.go "this_one_is_$(name "$old")" . | xargs sed -i "s/this_one_is_$(name "$old")/this_one_is_$(name "$new")/g; s/= \"$old\"/= \"$new\"/"
find . -name go.mod | xargs sed -i "s|\(github.com/pooldriver/pooldriver[^ ]*\) $old\( .*\)\{0,1\}$|\1 $new\2|"
