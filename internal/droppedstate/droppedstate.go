// Package droppedstate decides how often a log says something about a statement whose session state ended
// with the statement.
package droppedstate

import "sync"

// Most bounds the statements that a Told remembers.
const Most = 256

// Told is the statements that the log already has. The zero value is empty. A Told is safe for
// concurrent use.
type Told struct {
	mu         sync.Mutex // protects following fields
	statements map[string]struct{}
}

// First reports whether the log must get a statement: at its first time, unless Most other
// statements came before.
func (t *Told) First(statement string) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, ok := t.statements[statement]; ok || len(t.statements) >= Most {
		return false
	}
	if t.statements == nil {
		t.statements = map[string]struct{}{}
	}
	t.statements[statement] = struct{}{}
	return true
}
