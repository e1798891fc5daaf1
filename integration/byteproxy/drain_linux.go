package byteproxy

import (
	"net"
	"time"

	"golang.org/x/sys/unix"
)

// drainTimeout bounds the wait for a peer that does not read.
const drainTimeout = 5 * time.Second

// drain returns when the kernel has sent what was written to the connection.
func drain(c *net.TCPConn) {
	raw, err := c.SyscallConn()
	if err != nil {
		return // Closed: nothing is queued.
	}
	for end := time.Now().Add(drainTimeout); time.Now().Before(end); time.Sleep(50 * time.Microsecond) {
		queued := 0
		err := raw.Control(func(fd uintptr) {
			queued, _ = unix.IoctlGetInt(int(fd), unix.SIOCOUTQNSD)
		})
		if err != nil || queued == 0 {
			return
		}
	}
}
