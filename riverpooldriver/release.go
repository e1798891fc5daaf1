package riverpooldriver

import "github.com/pooldriver/pooldriver/internal/onerelease"

// If this does not compile, the program has modules of several releases of pooldriver. To have one:
//
//	go get github.com/pooldriver/pooldriver/...@latest
const _ = onerelease.GoGet_all_modules_of_pooldriver_at_one_version_this_one_is_v0_2_0
