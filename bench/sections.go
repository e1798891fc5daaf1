package main

// The sections of the report, beside the servers'.
const (
	sectionPool      = "Bare pool"
	sectionNull      = "Null driver"
	sectionSQLite    = "SQLite"
	sectionTasks     = "Tasks"
	sectionReading   = "Reading in a task"
	sectionPipelines = "Pipelines"
	sectionPgx       = "pgx's API"
)

// sectionTexts say what a section's tables are to be read with.
var sectionTexts = map[string]string{
	sectionPool: "One acquire and release, statistics included.",
	sectionNull: `The driver does nothing: what is measured lies between the program and the driver.
puddle lends the driver's own connections, without database/sql.`,
	sectionSQLite: `A file of its own (WAL, synchronous off). The parameterised query reads no table; exec and
transactions update a row by its key.`,
	"PostgreSQL": `Without a proxy, fsync off. pgxpool has pgx's own interface, the others go through
database/sql.`,
	"MariaDB":    "Without a proxy, a commit reaches the operating system only.",
	"MySQL":      "As MariaDB. Nothing is promised here that is not promised there.",
	sectionTasks: "What a task costs, and the order in which tasks are served.",
	sectionPipelines: `PostgreSQL, with and without pool_pipeline. Each goroutine runs one statement after the other, a
lookup by primary key unless another one is named. In the first table a ratio is the figure of the last
contender by the other's, as it stands: a throughput is to be above 1, a time below.`,
	sectionPgx: `pgx's own API over pgxpool, and over the pool of a Connector (module pgxpooldriver). After each
copy the table is truncated.`,
	sectionGorm: "gorm over a *sql.DB, as its users call it: it wraps each write in a transaction.",
	sectionReading: `One query of many rows. Between two rows of a task others may want the connection, so
each is read under a lock.`,
}
