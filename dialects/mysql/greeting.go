package mysql

import (
	"bytes"
	"encoding/binary"
	"strconv"
	"strings"
)

// greetingSize is enough for the part of the greeting that is read here: the
// server's version, which servers and proxies write as long as they like, and
// the number of the connection.
const greetingSize = 256

// threadID reads the connection's number from the server's greeting: a packet
// header of four bytes, the protocol's version 10, the server's version up to
// a NUL, the number in four bytes. The number is zero if something else was read.
//
// The number is what KILL takes. A server that counts beyond 32 bits sends the lower 32: it has had
// four billion connections without a restart.
func threadID(head []byte) uint64 {
	_, rest := greeted(head)
	if len(rest) < 4 {
		return 0
	}
	return uint64(binary.LittleEndian.Uint32(rest))
}

// greeted returns the server's version and what follows it; both are empty if something else was
// read.
func greeted(head []byte) (version string, rest []byte) {
	const header, protocol = 4, 10
	if len(head) <= header || head[header] != protocol {
		return "", nil
	}
	v, rest, found := bytes.Cut(head[header+1:], []byte{0})
	if !found {
		return "", nil
	}
	return string(v), rest
}

// keepsTypes reports whether the server keeps the types of a prepared statement's parameters: MySQL
// since 8.0.22, and every server that does not say that it is older or MariaDB (which puts 5.5.5-
// before its version for old clients).
func keepsTypes(head []byte) bool {
	if isMariaDB(head) {
		return false
	}
	version, _ := greeted(head)
	major, _, _ := strings.Cut(version, ".")
	number, err := strconv.Atoi(major)
	return err != nil || number >= 8
}

func isMariaDB(head []byte) bool {
	version, _ := greeted(head)
	return strings.Contains(version, "MariaDB")
}
