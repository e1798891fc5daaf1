package sqltext

import "strings"

// Names maps names, in any letter case, to small codes. It is made once and never changes, and a
// lookup allocates nothing.
type Names struct {
	slots []nameSlot
	shift uint

	// lengths has, in the entry of a first byte, bit n set if a name of n bytes begins with that
	// byte. This alone excludes most words of a query.
	lengths [256]uint32
}

type nameSlot struct {
	name string
	code uint8
}

// Group is a list of names, separated by white space, that share a code.
type Group struct {
	Code  uint8
	Names string
}

// NewNames makes the table. The names are lower case. A name listed twice with two
// codes, or a code 0, is a mistake in the table and panics.
func NewNames(groups ...Group) *Names {
	count := 0
	for _, g := range groups {
		count += len(strings.Fields(g.Names))
	}
	t := &Names{shift: 64 - 4}
	for size := 16; size < 4*count; size *= 2 {
		t.shift--
	}
	t.slots = make([]nameSlot, 1<<(64-t.shift))
	for _, g := range groups {
		if g.Code == 0 {
			panic("sqltext: code 0 means that a name is not in the table")
		}
		for _, name := range strings.Fields(g.Names) {
			t.add(name, g.Code)
		}
	}
	return t
}

// Words makes a table of names that all have the code 1.
func Words(names string) *Names { return NewNames(Group{Code: 1, Names: names}) }

func (t *Names) add(name string, code uint8) {
	if name != strings.ToLower(name) {
		panic("sqltext: name " + name + " is not lower case")
	}
	if old := t.Lookup(name); old != 0 && old != code {
		panic("sqltext: name " + name + " has two codes")
	}
	i := t.hash(name)
	for t.slots[i].name != "" && t.slots[i].name != name {
		i = (i + 1) % uint64(len(t.slots))
	}
	t.slots[i] = nameSlot{name, code}
	first := name[0]
	t.lengths[first] |= 1 << min(len(name), 31)
	if 'a' <= first && first <= 'z' {
		t.lengths[first-'a'+'A'] |= 1 << min(len(name), 31)
	}
}

// Lookup returns the code of a name, or 0. ASCII letters match in either case.
func (t *Names) Lookup(name string) uint8 {
	if name == "" || t.lengths[name[0]]>>min(len(name), 31)&1 == 0 {
		return 0
	}
	for i := t.hash(name); ; i = (i + 1) & uint64(len(t.slots)-1) {
		slot := &t.slots[i]
		if slot.name == "" {
			return 0
		}
		if Equal(name, slot.name) {
			return slot.code
		}
	}
}

// hash looks at the length and four bytes: names are short, and the first byte
// and the length were compared before.
func (t *Names) hash(s string) uint64 {
	n := len(s)
	h := uint64(n)<<32 | uint64(s[n/4]|0x20)<<24 | uint64(s[n/2]|0x20)<<16 | uint64(s[n*3/4]|0x20)<<8 | uint64(s[n-1]|0x20)
	return h * 0x9e3779b97f4a7c15 >> t.shift
}

// Equal reports whether s is the lower-case word lower, in any letter case.
func Equal(s, lower string) bool {
	if len(s) != len(lower) {
		return false
	}
	for i := range len(s) {
		c := s[i]
		if c != lower[i] && (c < 'A' || c > 'Z' || c+('a'-'A') != lower[i]) {
			return false
		}
	}
	return true
}

// HasPrefix reports whether s begins with the lower-case prefix, in any letter
// case.
func HasPrefix(s, lower string) bool {
	return len(s) >= len(lower) && Equal(s[:len(lower)], lower)
}
