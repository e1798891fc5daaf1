package conformance

import (
	"fmt"
	"strconv"
)

// Difference permits one observation of one case to differ.
type Difference struct {
	Case   string
	Label  string
	Reason string

	// Permits reports whether the wrapped driver may show this where the bare
	// one shows that. Equal observations are not asked about.
	Permits func(bare, wrapped string) bool
}

// becomes permits one thing only.
func becomes(want string) func(string, string) bool {
	return func(_, wrapped string) bool { return wrapped == want }
}

// notMore permits a smaller number.
func notMore(bare, wrapped string) bool {
	b, errB := number(bare)
	w, errW := number(wrapped)
	return errB == nil && errW == nil && w <= b
}

// anyNumber permits every number.
func anyNumber(_, wrapped string) bool {
	_, err := number(wrapped)
	return err == nil
}

// number reads back what describe makes of an int.
func number(described string) (int, error) {
	var quoted string
	if _, err := fmt.Sscanf(described, "int(%q)", &quoted); err != nil {
		return 0, err
	}
	return strconv.Atoi(quoted)
}

// differing returns a line for every observation that differs without
// permission.
func differing(name string, permitted []Difference, bare, wrapped *Env) []string {
	var lines []string
	for i := range max(len(bare.notes), len(wrapped.notes)) {
		b, w := at(bare.notes, i), at(wrapped.notes, i)
		if b == w {
			continue
		}
		if b.label == w.label && permits(permitted, name, b, w) {
			continue
		}
		lines = append(lines, fmt.Sprintf("observation %d of %s\n\tbare:    %s\n\twrapped: %s", i+1, name, b, w))
		if b.label != w.label {
			// Behind this point the two runs went different ways.
			break
		}
	}
	return lines
}

func permits(permitted []Difference, name string, bare, wrapped note) bool {
	for _, d := range permitted {
		if d.Case == name && d.Label == bare.label && d.Permits(bare.value, wrapped.value) {
			return true
		}
	}
	return false
}

func at(notes []note, i int) note {
	if i < len(notes) {
		return notes[i]
	}
	return note{label: "nothing more"}
}
