module github.com/pooldriver/pooldriver/sandbox

go 1.26.0

require (
	github.com/pooldriver/pooldriver v0.2.0
	github.com/stretchr/testify v1.12.1
	go.uber.org/goleak v1.3.0
)

require go.yaml.in/yaml/v3 v3.0.5 // indirect

// In a clone the modules use each other as they stand there. Who installs this one gets the
// releases that it requires.
replace github.com/pooldriver/pooldriver => ..
