package sqltext

import "strings"

// Names maps names, in any letter case, to sets of bits. It is made once and never changes, and a lookup
// allocates nothing.
type Names[C ~uint32] struct {
	codes map[string]C
	// lengths has, in the entry of a first byte, bit n set if a name of n bytes begins with that
	// byte. This alone excludes most words of a query.
	lengths [256]uint64
}

// Group is a list of names, separated by white space, that have a code.
type Group[C ~uint32] struct {
	Code  C
	Names string
}

// longest is the length of the longest name.
const longest = 63

// NewNames makes the table. The names are lower case. A name in two groups has the codes of both.
func NewNames[C ~uint32](groups ...Group[C]) *Names[C] {
	t := &Names[C]{codes: map[string]C{}}
	for _, g := range groups {
		for _, name := range strings.Fields(g.Names) {
			if name != strings.ToLower(name) || len(name) > longest {
				panic("sqltext: name " + name + " is not lower case, or too long")
			}
			t.codes[name] |= g.Code
			t.lengths[name[0]] |= 1 << len(name)
		}
	}
	return t
}

// Lookup returns the code of a name, or 0. ASCII letters match in either case.
func (t *Names[C]) Lookup(name string) C {
	if name == "" || len(name) > longest || t.lengths[lower(name[0])]>>len(name)&1 == 0 {
		return 0
	}
	var folded [longest]byte
	for i := range len(name) {
		folded[i] = lower(name[i])
	}
	return t.codes[string(folded[:len(name)])]
}

func lower(c byte) byte {
	if 'A' <= c && c <= 'Z' {
		c += 'a' - 'A'
	}
	return c
}

// Equal reports whether s is the lower-case word want, in any letter case.
func Equal(s, want string) bool { return len(s) == len(want) && HasPrefix(s, want) }

// HasPrefix reports whether s begins with the lower-case prefix, in any letter case.
func HasPrefix(s, prefix string) bool {
	if len(s) < len(prefix) {
		return false
	}
	for i := range len(prefix) {
		if lower(s[i]) != prefix[i] {
			return false
		}
	}
	return true
}

// Contains reports whether s contains the lower-case text, in any letter case.
func Contains(s, text string) bool {
	for ; len(s) >= len(text); s = s[1:] {
		if HasPrefix(s, text) {
			return true
		}
	}
	return false
}
