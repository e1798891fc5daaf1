//go:build !linux

package byteproxy

import (
	"net"
	"time"
)

// drain gives the kernel time to send what was written to the connection. Only
// Linux tells how much is left.
func drain(*net.TCPConn) { time.Sleep(20 * time.Millisecond) }
