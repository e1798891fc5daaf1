package fakedb

import "database/sql/driver"

type (
	stmtBase     = driver.Stmt
	stmtExecCtx  = driver.StmtExecContext
	stmtQueryCtx = driver.StmtQueryContext
	convert      = driver.ColumnConverter //nolint:staticcheck // Deprecated, and drivers with it exist.
)

var stmtShapes = map[Features]func(*stmt) driver.Stmt{
	StmtFeatures: func(s *stmt) driver.Stmt { return s },
	None:         func(s *stmt) driver.Stmt { return struct{ stmtBase }{s} },

	StmtExecContext: func(s *stmt) driver.Stmt {
		return struct {
			stmtBase
			stmtExecCtx
		}{s, s}
	},
	StmtQueryContext: func(s *stmt) driver.Stmt {
		return struct {
			stmtBase
			stmtQueryCtx
		}{s, s}
	},
	StmtNamedValueChecker: func(s *stmt) driver.Stmt {
		return struct {
			stmtBase
			check
		}{s, s}
	},
	ColumnConverter: func(s *stmt) driver.Stmt {
		return struct {
			stmtBase
			convert
		}{s, s}
	},

	StmtFeatures &^ StmtExecContext: func(s *stmt) driver.Stmt {
		return struct {
			*stmt
			stmtExecCtx
		}{stmt: s}
	},
	StmtFeatures &^ StmtQueryContext: func(s *stmt) driver.Stmt {
		return struct {
			*stmt
			stmtQueryCtx
		}{stmt: s}
	},
	StmtFeatures &^ StmtNamedValueChecker: func(s *stmt) driver.Stmt {
		return struct {
			*stmt
			check
		}{stmt: s}
	},
	StmtFeatures &^ ColumnConverter: func(s *stmt) driver.Stmt {
		return struct {
			*stmt
			convert
		}{stmt: s}
	},

	likePgx & StmtFeatures: func(s *stmt) driver.Stmt {
		return struct {
			stmtBase
			stmtExecCtx
			stmtQueryCtx
		}{s, s, s}
	},
}
