package sqltext

import (
	"math/bits"
	"strings"
)

// Names maps names, in any letter case, to sets of bits. It is made once and never changes, and a lookup
// allocates nothing.
type Names[C ~uint32] struct {
	// lengths has, in the entry of a first byte, bit n set if a name of n bytes begins with that
	// byte. This alone excludes most words of a query.
	lengths [256]uint64
	// table is a hash table, at least half empty; its length is a power of two. A name stands at its hash, or in the next free place.
	table []named[C]
}

type named[C ~uint32] struct {
	name string
	code C
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
	codes := map[string]C{}
	for _, g := range groups {
		for _, name := range strings.Fields(g.Names) {
			if name != strings.ToLower(name) || len(name) > longest {
				panic("sqltext: name " + name + " is not lower case, or too long")
			}
			codes[name] |= g.Code
		}
	}
	t := &Names[C]{table: make([]named[C], 1<<bits.Len(uint(2*len(codes))))}
	for name, code := range codes {
		t.lengths[name[0]] |= 1 << len(name)
		*t.place(name) = named[C]{name, code}
	}
	return t
}

// Lookup returns the code of a name, or 0. ASCII letters match in either case.
func (t *Names[C]) Lookup(name string) C {
	if name == "" || len(name) > longest || t.lengths[lower(name[0])]>>len(name)&1 == 0 {
		return 0
	}
	return t.place(name).code
}

// place is where a name stands, or a free place for it.
func (t *Names[C]) place(name string) *named[C] {
	var hash uint
	for i := range len(name) {
		hash = hash*31 + uint(name[i]|0x20)
	}
	for ; ; hash++ {
		if p := &t.table[hash&uint(len(t.table)-1)]; p.name == "" || Equal(name, p.name) {
			return p
		}
	}
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
