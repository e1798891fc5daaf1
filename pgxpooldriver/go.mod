module github.com/pooldriver/pooldriver/pgxpooldriver

go 1.26.0

require (
	github.com/jackc/pgx/v5 v5.12.0
	github.com/pooldriver/pooldriver v0.2.0
	github.com/stretchr/testify v1.12.1
)
