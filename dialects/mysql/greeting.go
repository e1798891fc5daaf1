package mysql

import (
	"bytes"
	"encoding/binary"
)

// greetingSize is enough for the part of the greeting that is read here: the
// server's version, which servers and proxies write as long as they like, and
// the number of the connection.
const greetingSize = 256

// threadID reads the connection's number from the server's greeting: a packet
// header of four bytes, the protocol's version 10, the server's version up to
// a NUL, the number in four bytes. It is zero where that is not what was read.
//
// The number is what KILL takes. A server that counts beyond 32 bits sends the
// lower ones; by then somebody has had four billion connections to restart it.
func threadID(head []byte) uint64 {
	const header, protocol = 4, 10
	if len(head) <= header || head[header] != protocol {
		return 0
	}
	_, rest, found := bytes.Cut(head[header+1:], []byte{0})
	if !found || len(rest) < 4 {
		return 0
	}
	return uint64(binary.LittleEndian.Uint32(rest))
}
