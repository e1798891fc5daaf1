package fakedb

import "strings"

// Features is the set of the optional interfaces of database/sql/driver that a
// driver implements.
type Features uint32

// One bit for each optional interface. Where the interface exists for
// connections and for statements, the name says which is meant.
const (
	Pinger Features = 1 << iota
	Execer
	ExecerContext
	Queryer
	QueryerContext
	ConnPrepareContext
	ConnBeginTx
	SessionResetter
	Validator
	ConnNamedValueChecker

	StmtExecContext
	StmtQueryContext
	StmtNamedValueChecker
	ColumnConverter

	RowsNextResultSet
	ColumnTypeScanType
	ColumnTypeDatabaseTypeName
	ColumnTypeLength
	ColumnTypeNullable
	ColumnTypePrecisionScale
	// RowsColumnScanner: database/sql asks for it since Go 1.27.
	RowsColumnScanner

	DriverContext
	ConnectorCloser

	lastFeature
)

// Sets of features, by the object which has them.
const (
	None         Features = 0
	All                   = lastFeature - 1
	ConnFeatures          = StmtExecContext - 1
	StmtFeatures          = RowsNextResultSet - StmtExecContext
	RowsFeatures          = DriverContext - RowsNextResultSet

	// Legacy is a driver written before Go 1.8: no context anywhere.
	Legacy = Execer | Queryer | ColumnConverter
)

var featureNames = [...]string{
	"Pinger", "Execer", "ExecerContext", "Queryer", "QueryerContext",
	"ConnPrepareContext", "ConnBeginTx", "SessionResetter", "Validator",
	"ConnNamedValueChecker", "StmtExecContext", "StmtQueryContext",
	"StmtNamedValueChecker", "ColumnConverter", "RowsNextResultSet",
	"ColumnTypeScanType", "ColumnTypeDatabaseTypeName", "ColumnTypeLength",
	"ColumnTypeNullable", "ColumnTypePrecisionScale",
	"RowsColumnScanner", "DriverContext", "ConnectorCloser",
}

// Has reports whether all features of other are in f.
func (f Features) Has(other Features) bool { return f&other == other }

// String joins the names of the features with "+"; the empty set is "none".
func (f Features) String() string {
	switch f {
	case None:
		return "none"
	case All:
		return "all"
	}
	var set []string
	for i, name := range featureNames {
		if f.Has(1 << i) {
			set = append(set, name)
		}
	}
	return strings.Join(set, "+")
}

// Quirks are ways in which real drivers behave differently behind the same
// interfaces.
type Quirks uint8

const (
	// SkipWithArgs makes Exec and Query of a connection answer driver.ErrSkip
	// when there are arguments, as go-sql-driver does by default.
	SkipWithArgs Quirks = 1 << iota

	// UnknownNumInput makes statements answer -1 for the number of their
	// placeholders.
	UnknownNumInput

	// NoLastInsertID makes Result.LastInsertId an error, as pgx does.
	NoLastInsertID

	// BusyWhileRowsOpen makes a connection refuse the next statement while
	// rows are open, as client/server drivers do.
	BusyWhileRowsOpen

	// ResetFails makes ResetSession answer an error which is not
	// driver.ErrBadConn.
	ResetFails
)

// Variant is one shape of driver.
type Variant struct {
	Name     string
	Features Features
	Quirks   Quirks
}

// Variants returns the shapes a wrapper must cope with: everything, nothing,
// the past, each interface alone, each one missing, those of known drivers,
// and the quirks.
func Variants() []Variant {
	all := []Variant{
		{Name: "everything", Features: All},
		{Name: "bare minimum", Features: None},
		{Name: "legacy", Features: Legacy},
		{Name: "legacy, skipping", Features: Legacy, Quirks: SkipWithArgs},
		{
			Name:     "like pgx",
			Features: likePgx | DriverContext,
			Quirks:   NoLastInsertID | BusyWhileRowsOpen,
		},
		{
			Name:     "like go-sql-driver",
			Features: likeMySQL | DriverContext,
			Quirks:   SkipWithArgs | BusyWhileRowsOpen,
		},
		{Name: "like odbc", Features: likeODBC},
		{Name: "everything, skipping", Features: All, Quirks: SkipWithArgs},
		{Name: "everything, unknown inputs", Features: All, Quirks: UnknownNumInput},
		{Name: "everything, reset fails", Features: All, Quirks: ResetFails},
	}
	for i, name := range featureNames {
		one := Features(1) << i
		all = append(all,
			Variant{Name: "only " + name, Features: one},
			Variant{Name: "without " + name, Features: All &^ one})
	}
	return all
}
