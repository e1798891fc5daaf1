package fakedb

import "database/sql/driver"

// A Go type cannot gain or lose a method at run time, so every shape of
// connection is a type of its own. Two rules of embedding keep them to one
// line each:
//
//   - an interface embedded beside driver.Conn adds its methods;
//   - an interface embedded beside *conn, which has the method already, makes
//     that method ambiguous, and an ambiguous method is in no method set.
//
// The second kind leaves the embedded interface nil: nothing can call it.

type (
	base     = driver.Conn
	ping     = driver.Pinger
	exec     = driver.Execer //nolint:staticcheck // Deprecated, and drivers with it exist.
	execCtx  = driver.ExecerContext
	query    = driver.Queryer //nolint:staticcheck // Deprecated, and drivers with it exist.
	queryCtx = driver.QueryerContext
	prepare  = driver.ConnPrepareContext
	beginTx  = driver.ConnBeginTx
	reset    = driver.SessionResetter
	valid    = driver.Validator
	check    = driver.NamedValueChecker
)

const (
	likePgx = Pinger | ExecerContext | QueryerContext | ConnPrepareContext | ConnBeginTx |
		SessionResetter | ConnNamedValueChecker | StmtExecContext | StmtQueryContext |
		ColumnTypeScanType | ColumnTypeDatabaseTypeName | ColumnTypeLength | ColumnTypePrecisionScale | RowsColumnScanner
	likeMySQL = Pinger | ExecerContext | QueryerContext | ConnPrepareContext | ConnBeginTx |
		SessionResetter | Validator | ConnNamedValueChecker | StmtExecContext | StmtQueryContext |
		StmtNamedValueChecker | RowsNextResultSet | ColumnTypeScanType |
		ColumnTypeDatabaseTypeName | ColumnTypeNullable | ColumnTypePrecisionScale
	likeODBC = QueryerContext | RowsNextResultSet
)

var connShapes = map[Features]func(*conn) driver.Conn{
	ConnFeatures: func(c *conn) driver.Conn { return c },
	None:         func(c *conn) driver.Conn { return struct{ base }{c} },

	Pinger: func(c *conn) driver.Conn {
		return struct {
			base
			ping
		}{c, c}
	},
	Execer: func(c *conn) driver.Conn {
		return struct {
			base
			exec
		}{c, c}
	},
	ExecerContext: func(c *conn) driver.Conn {
		return struct {
			base
			execCtx
		}{c, c}
	},
	Queryer: func(c *conn) driver.Conn {
		return struct {
			base
			query
		}{c, c}
	},
	QueryerContext: func(c *conn) driver.Conn {
		return struct {
			base
			queryCtx
		}{c, c}
	},
	ConnPrepareContext: func(c *conn) driver.Conn {
		return struct {
			base
			prepare
		}{c, c}
	},
	ConnBeginTx: func(c *conn) driver.Conn {
		return struct {
			base
			beginTx
		}{c, c}
	},
	SessionResetter: func(c *conn) driver.Conn {
		return struct {
			base
			reset
		}{c, c}
	},
	Validator: func(c *conn) driver.Conn {
		return struct {
			base
			valid
		}{c, c}
	},
	ConnNamedValueChecker: func(c *conn) driver.Conn {
		return struct {
			base
			check
		}{c, c}
	},

	ConnFeatures &^ Pinger: func(c *conn) driver.Conn {
		return struct {
			*conn
			ping
		}{conn: c}
	},
	ConnFeatures &^ Execer: func(c *conn) driver.Conn {
		return struct {
			*conn
			exec
		}{conn: c}
	},
	ConnFeatures &^ ExecerContext: func(c *conn) driver.Conn {
		return struct {
			*conn
			execCtx
		}{conn: c}
	},
	ConnFeatures &^ Queryer: func(c *conn) driver.Conn {
		return struct {
			*conn
			query
		}{conn: c}
	},
	ConnFeatures &^ QueryerContext: func(c *conn) driver.Conn {
		return struct {
			*conn
			queryCtx
		}{conn: c}
	},
	ConnFeatures &^ ConnPrepareContext: func(c *conn) driver.Conn {
		return struct {
			*conn
			prepare
		}{conn: c}
	},
	ConnFeatures &^ ConnBeginTx: func(c *conn) driver.Conn {
		return struct {
			*conn
			beginTx
		}{conn: c}
	},
	ConnFeatures &^ SessionResetter: func(c *conn) driver.Conn {
		return struct {
			*conn
			reset
		}{conn: c}
	},
	ConnFeatures &^ Validator: func(c *conn) driver.Conn {
		return struct {
			*conn
			valid
		}{conn: c}
	},
	ConnFeatures &^ ConnNamedValueChecker: func(c *conn) driver.Conn {
		return struct {
			*conn
			check
		}{conn: c}
	},

	Execer | Queryer: func(c *conn) driver.Conn {
		return struct {
			base
			exec
			query
		}{c, c, c}
	},
	likePgx & ConnFeatures: func(c *conn) driver.Conn {
		return struct {
			*conn
			exec
			query
			valid
		}{conn: c}
	},
	likeMySQL & ConnFeatures: func(c *conn) driver.Conn {
		return struct {
			*conn
			exec
			query
		}{conn: c}
	},
}
