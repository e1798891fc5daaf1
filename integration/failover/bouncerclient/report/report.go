// Package report is what a bouncerclient tells those who started it.
package report

// Report is JSON on its standard output.
type Report struct {
	Committed  int
	RolledBack int
	Cancelled  int
	Opened     uint64 // connections to PgBouncer
	Errors     List   // of statements that should have succeeded
	Foreign    List   // what was there of others, or of before
}

// List counts all of its lines and keeps the first ones.
type List struct {
	Count int
	First []string
}

const kept = 5

// Append adds a line.
func (l *List) Append(line string) { l.add(List{Count: 1, First: []string{line}}) }

func (l *List) add(other List) {
	l.Count += other.Count
	l.First = append(l.First, other.First[:min(len(other.First), max(0, kept-len(l.First)))]...)
}

// Add takes another report in.
func (r *Report) Add(other Report) {
	r.Committed += other.Committed
	r.RolledBack += other.RolledBack
	r.Cancelled += other.Cancelled
	r.Opened += other.Opened
	r.Errors.add(other.Errors)
	r.Foreign.add(other.Foreign)
}
