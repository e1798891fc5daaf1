package ahead

import (
	"net"
	"testing"

	"github.com/stretchr/testify/require"

	"github.com/pooldriver/pooldriver/dialects/internal/wire"
)

// echo is a network that takes everything, and has an answer at once.
type echo struct {
	net.Conn
	answer []byte
}

func (e *echo) Write(p []byte) (int, error) { return len(p), nil }
func (e *echo) Read(p []byte) (int, error)  { return copy(p, e.answer), nil }

// layers returns what pgx talks to for nc: the Conn above the gate and the wire.
func layers(nc net.Conn) *Conn {
	g := &gate{Conn: wire.New(nc, 512)}
	return &Conn{r: g, w: g, gate: g}
}

// BenchmarkTheLayersOfAConnection is what they add to a statement: one write and one read, with and without them.
func BenchmarkTheLayersOfAConnection(b *testing.B) {
	nc := &echo{answer: []byte(idle)}
	over := func(c interface {
		Read(p []byte) (int, error)
		Write(p []byte) (int, error)
	}) func(b *testing.B) {
		return func(b *testing.B) {
			b.ReportAllocs()
			request, answer := make([]byte, 64), make([]byte, 128)
			for b.Loop() {
				_, _ = c.Write(request)
				_, _ = c.Read(answer)
			}
		}
	}
	b.Run("none", over(nc))
	b.Run("wire", over(wire.New(nc, 512)))
	b.Run("wire, gate and ahead", over(layers(nc)))
}

func TestTheLayersAllocateNothing(t *testing.T) {
	c := layers(&echo{answer: []byte(idle)})
	request, answer := make([]byte, 64), make([]byte, 1024)
	_, err := c.Read(answer) // the head that is kept
	require.NoError(t, err)
	require.Zero(t, testing.AllocsPerRun(100, func() {
		_, _ = c.Write(request)
		_, _ = c.Read(answer)
	}))
}
