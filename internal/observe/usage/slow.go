package usage

import "time"

// SlowQuery is a statement that has taken long: until its answer or, if it has rows, until they were
// closed or read into memory.
type SlowQuery struct {
	Text, Label *string
	Waited      time.Duration // for its connection
	Took        time.Duration
	Idle        time.Duration // the part of Took in which the program did not read
	Rows        int64         // that were read, or affected; below 0: not known
}

// statement is the statement that is measured for Config.SlowQuery.
type statement struct {
	began  int64 // coarsely; 0: none is measured
	idle   int64 // of the checkout, at the beginning
	waited time.Duration
	rows   int64
	open   bool // its rows are open
}

// beginStatement begins a statement; text is nil if the operation is none.
func (m *Meter) beginStatement(text *string, now int64, waited time.Duration) {
	m.slow = statement{idle: m.idle.Load(), waited: waited, rows: -1}
	if text != nil {
		m.slow.began = now
	}
}

// endStatement ends the measured statement. If the statement was slow, Env.TellSlow is called.
func (m *Meter) endStatement(now int64) {
	s := m.slow
	m.slow.began = 0
	if took := time.Duration(now - s.began); s.began != 0 && took >= m.config.SlowQuery {
		m.env.TellSlow(SlowQuery{m.text.Load(), m.label.Load(), s.waited, took, time.Duration(m.idle.Load() - s.idle), s.rows})
	}
}

// TellsSlow reports whether statements are measured.
func (m *Meter) TellsSlow() bool { return m.config.SlowQuery > 0 }

// IsSlow reports whether the statement that runs has taken so long that TellSlow will be told.
func (m *Meter) IsSlow() bool {
	return m.config.SlowQuery > 0 && m.slow.began != 0 && time.Duration(m.env.Clock.Coarse()-m.slow.began) >= m.config.SlowQuery
}

// Affected says how many rows the statement has affected.
func (m *Meter) Affected(n int64) { m.slow.rows = n }

// CountRow counts a row that was read.
func (m *Meter) CountRow() { m.slow.rows++ }

// OpenRows says that the operation has opened rows, and CloseRows that they were closed.
func (m *Meter) OpenRows() { m.slow.open, m.slow.rows = true, 0 }

// CloseRows ends what OpenRows began.
func (m *Meter) CloseRows() {
	m.slow.open = false
	m.endStatement(m.env.Clock.Coarse())
}
