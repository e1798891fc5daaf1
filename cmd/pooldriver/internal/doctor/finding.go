// Package doctor looks at a database server, and says what does not fit to the settings of a pool. It
// writes nothing to the database.
package doctor

import (
	"encoding/json"
	"fmt"
	"io"
	"strings"
	"unicode"
)

// Level says how much a Finding matters.
type Level string

// The levels, the least first.
const (
	OK   Level = "ok"   // it fits
	Note Level = "note" // to know, or what could not be found out
	Warn Level = "warn" // it works, and costs something
	Bad  Level = "bad"  // it fails, now or under load
)

// Finding is one line of a Report. It holds no secret.
type Finding struct {
	Level   Level  `json:"level"`
	Check   string `json:"check"` // a name that stays the same, for programs
	Found   string `json:"found"`
	Follows string `json:"follows,omitempty"` // what that means for the program
	Type    string `json:"type,omitempty"`    // what to type: a parameter of the DSN, a statement, a command
}

// Report is what was found. Its JSON is for programs.
type Report struct {
	Target   string    `json:"target"` // where the DSN leads
	Findings []Finding `json:"findings"`
}

// Add adds a line. What comes from a server or a program cannot move the cursor of a terminal, and
// is shortened.
func (r *Report) Add(f Finding) {
	for _, text := range []*string{&f.Found, &f.Follows, &f.Type} {
		*text = printable(*text)
	}
	r.Findings = append(r.Findings, f)
}

// unknown adds a line about something that could not be found out.
func (r *Report) unknown(check, what string, err error) {
	r.Add(Finding{Level: Note, Check: check, Found: what + " could not be read: " + err.Error()})
}

// Count returns how many findings have this level.
func (r *Report) Count(level Level) (n int) {
	for _, f := range r.Findings {
		if f.Level == level {
			n++
		}
	}
	return n
}

// WriteJSON writes the report for programs.
func (r *Report) WriteJSON(w io.Writer) error {
	e := json.NewEncoder(w)
	e.SetEscapeHTML(false)
	e.SetIndent("", "  ")
	return e.Encode(r)
}

// WriteText writes the report for people: for each finding what was found, what follows, what to type.
func (r *Report) WriteText(w io.Writer) error {
	var b strings.Builder
	b.WriteString(printable(r.Target) + "\n\n")
	for _, f := range r.Findings {
		fmt.Fprintf(&b, "%-4s  %s: %s\n", f.Level, f.Check, f.Found)
		if f.Follows != "" {
			fmt.Fprintf(&b, "      → %s\n", f.Follows)
		}
		if f.Type != "" {
			fmt.Fprintf(&b, "      $ %s\n", f.Type)
		}
	}
	fmt.Fprintf(&b, "\n%d bad, %d warn, %d note, %d ok\n", r.Count(Bad), r.Count(Warn), r.Count(Note), r.Count(OK))
	_, err := io.WriteString(w, b.String())
	return err
}

// mostText bounds a text of a finding, in bytes.
const mostText = 700

func printable(text string) string {
	if len(text) > mostText {
		text = strings.ToValidUTF8(text[:mostText], "") + "…"
	}
	return strings.Map(func(r rune) rune {
		if unicode.IsControl(r) {
			return ' '
		}
		return r
	}, text)
}

// counted returns "1 noun" or "n nouns".
func counted(n int, noun string) string {
	if n == 1 {
		return "1 " + noun
	}
	return fmt.Sprintf("%d %ss", n, noun)
}
