package conformance

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
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

// holding permits what has that one thing in it.
func holding(want string) func(string, string) bool {
	return func(_, wrapped string) bool { return strings.Contains(wrapped, want) }
}

// failing permits an error where there was none.
func failing(bare, wrapped string) bool {
	_, _, isError := readError(wrapped)
	return bare == describeError(nil) && isError
}

// caughtPanic permits an error of this module where there was a panic, as long
// as it tells what the panic was about.
func caughtPanic(bare, wrapped string) bool {
	value, panicked := strings.CutPrefix(bare, "panic ")
	text, _, isError := readError(wrapped)
	var quoted string
	_, err := fmt.Sscanf(value, "string(%q)", &quoted)
	return panicked && isError && err == nil &&
		(strings.HasPrefix(text, "pooldriver: ") || strings.HasPrefix(text, "pool: ")) && strings.Contains(text, quoted)
}

// explained permits an error to have a longer text that begins with the
// module's name, as long as it contains the old one and errors.Is says the same
// of both.
func explained(bare, wrapped string) bool {
	bareText, bareIs, ok := readError(bare)
	if !ok {
		return false
	}
	text, is, ok := readError(wrapped)
	return ok && strings.HasPrefix(text, "pooldriver: ") && strings.Contains(text, bareText) && slices.Equal(is, bareIs)
}

var identity = regexp.MustCompile(`(?:==| is) ([\w.]+)`)

// readError reads back what describeError makes of an error: its text, and
// which well-known errors it is.
func readError(described string) (text string, is []string, ok bool) {
	rest, ok := strings.CutPrefix(described, "error ")
	if !ok {
		return "", nil, false
	}
	quoted, err := strconv.QuotedPrefix(rest)
	if err != nil {
		return "", nil, false
	}
	if text, err = strconv.Unquote(quoted); err != nil {
		return "", nil, false
	}
	for _, m := range identity.FindAllStringSubmatch(rest[len(quoted):], -1) {
		is = append(is, m[1])
	}
	return text, is, true
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
