package clones

import (
	"crypto/rand"
	"crypto/sha256"
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"strings"
	"sync/atomic"
)

// names are the names of one process for one template, such as sandbox_3f2a11_9bd01c77e2_51c09f3a_7:
// realm, hash, maker and number of a clone. They need no quotes in SQL.
type names struct {
	realm    string // the beginning of all names that one user has on one database
	template string
	owner    string // this process
	made     *atomic.Int64
}

func newNames(hash string, realm ...string) names {
	n := names{owner: hex.EncodeToString(random(4)), made: new(atomic.Int64)}
	n.realm = "sandbox_" + shorten(strings.Join(realm, "\x00"), 6) + "_"
	n.template = n.realm + hash
	return n
}

// unfinished is the name of the template while the migrations run.
func (n names) unfinished() string { return n.template + unfinishedSuffix }

const unfinishedSuffix = "_new"

// next is the name of a clone that is about to be made. It says who makes the clone, because the
// note is written later.
func (n names) next() string { return fmt.Sprintf("%s_%s_%d", n.template, n.owner, n.made.Add(1)) }

// templateOf returns the template of a name of the realm.
func (n names) templateOf(name string) string {
	hash, _, _ := strings.Cut(strings.TrimPrefix(name, n.realm), "_")
	return n.realm + hash
}

// makerOf returns who has made the clone.
func (n names) makerOf(name string) string {
	if parts := strings.Split(strings.TrimPrefix(name, n.realm), "_"); len(parts) == 3 {
		return parts[1]
	}
	return ""
}

// isClone reports whether name is that of a clone of this template.
func (n names) isClone(name string) bool {
	return strings.HasPrefix(name, n.template+"_") && n.makerOf(name) != ""
}

func random(n int) []byte {
	b := make([]byte, n)
	_, _ = rand.Read(b) // It never fails.
	return b
}

// shorten returns the first digits of a text's hash.
func shorten(text string, digits int) string {
	sum := sha256.Sum256([]byte(text))
	return hex.EncodeToString(sum[:])[:digits]
}

// lockKey is the number of an advisory lock.
func lockKey(text string) int64 {
	sum := sha256.Sum256([]byte("pooldriver sandbox " + text))
	return int64(binary.BigEndian.Uint64(sum[:8]) >> 1)
}
