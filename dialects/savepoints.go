package dialects

// Savepoints are the statements of a transaction inside another one. Each is followed
// by a space and the savepoint's name.
type Savepoints struct {
	Begin    string
	RollBack string // to the savepoint, which still exists afterwards
	Release  string // empty: the database has none, and a savepoint ends with its transaction
}

// standardSavepoints are those of standard SQL.
var standardSavepoints = Savepoints{Begin: "SAVEPOINT", RollBack: "ROLLBACK TO SAVEPOINT", Release: "RELEASE SAVEPOINT"}

// SavepointTexts returns Savepoints, or those of standard SQL if t has none.
func (t *Traits) SavepointTexts() *Savepoints {
	if t.Savepoints == (Savepoints{}) {
		return &standardSavepoints
	}
	return &t.Savepoints
}
