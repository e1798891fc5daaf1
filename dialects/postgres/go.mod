module github.com/pooldriver/pooldriver/dialects/postgres

go 1.26.0

require (
	github.com/jackc/pgx/v5 v5.13.0
	github.com/pooldriver/pooldriver v0.2.0
	github.com/stretchr/testify v1.12.1
	go.uber.org/goleak v1.3.0
)

require (
	github.com/jackc/pgpassfile v1.0.0 // indirect
	github.com/jackc/pgservicefile v0.0.0-20240606120523-5a60cdf6a761 // indirect
	github.com/jackc/puddle/v2 v2.2.3 // indirect
	go.yaml.in/yaml/v3 v3.0.5 // indirect
	golang.org/x/sync v0.24.0 // indirect
	golang.org/x/text v0.41.0 // indirect
)

// In a clone the modules use each other as they stand there. Who installs this one gets the
// releases that it requires.
replace github.com/pooldriver/pooldriver => ../..
