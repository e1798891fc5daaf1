package main

import (
	"fmt"
	"io"
	"runtime/debug"
)

// version says which pooldriver this is.
type version struct{}

// release is the tag of a binary that the workflow "release" has built. Its modules are those of a
// work tree and have no versions.
var release string

// Run prints the versions of the command, of the library in it, and of Go.
func (version) Run(w io.Writer) error {
	info, ok := debug.ReadBuildInfo()
	if !ok {
		info = new(debug.BuildInfo)
	}
	command, library := release, release
	if release == "" {
		command = info.Main.Version
		for _, m := range info.Deps {
			if m.Path == "github.com/pooldriver/pooldriver" {
				library = m.Version
			}
		}
	}
	_, err := fmt.Fprintf(w, "pooldriver %s, with the library %s, built by %s\n", command, library, info.GoVersion)
	return err
}
