// Package onerelease names the release that the tree belongs to or becomes.
//
// The modules of pooldriver share internal packages, so a program needs all of them of one release. A
// tool that updates dependencies raises each module alone. A module requires the root of its own
// release, so a module that was not raised meets a newer root. Each module refers to the name below,
// which is another one in each release: then the program does not compile, and the compiler's error
// says what to do.
//
// integration/release/raise.sh changes the names at the beginning of a release.
package onerelease

// GoGet_all_modules_of_pooldriver_at_one_version_this_one_is_v0_2_0 is the version. To repair a
// program that has modules of several releases:
//
//	go get github.com/pooldriver/pooldriver/...@latest
const GoGet_all_modules_of_pooldriver_at_one_version_this_one_is_v0_2_0 = "v0.2.0"
