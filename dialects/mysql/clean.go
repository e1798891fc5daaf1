package mysql

import (
	"context"
	"database/sql/driver"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/go-sql-driver/mysql"

	"github.com/pooldriver/pooldriver/dialects"
)

// home is the part of a connection's state at connect that COM_RESET_CONNECTION does not bring
// back. MySQL resets the character sets to the server's global values, not to those of the
// handshake. MySQL and MariaDB also reset the database's character set, forget SET NAMES and the
// DSN's variables, and keep database and roles. Every connection has its own home: the server's
// settings and the user's roles may have changed since the last connection.
type home struct {
	database string
	charset  bool   // the database's character set or collation is not the server's
	setup    string // SET with character sets and variables
	role     string // SET ROLE
	unusable error  // not nil: the state cannot be brought back

	// proxied: the server's number of the connection differs from that in the
	// greeting, which a proxy has sent.
	proxied bool
}

const askHome = "SELECT @@character_set_client, @@collation_connection, @@character_set_results, @@init_connect, CURRENT_ROLE(), CONNECTION_ID(), @@collation_database = @@global.collation_server, @@autocommit"

var (
	errSealed      = errors.New("the connection is compressed by the driver, or encrypted in a way that is not known")
	errSpoke       = errors.New("the server has spoken unasked")
	errInitConnect = errors.New("the server runs statements of its own at connect (init_connect)")
)

// findHome asks a new connection for its home. If the server refuses to answer, findHome returns no
// error: the server's connections are then replaced rather than cleaned.
func findHome(ctx context.Context, conn driver.Conn, c *mysql.Config, thread uint64) (*home, error) {
	h := &home{database: c.DBName}
	answer, err := ask(ctx, conn, askHome)
	switch {
	case errorNumber(err) != 0:
		h.unusable = err
		return h, nil
	case err != nil:
		return nil, err
	case len(answer) != 1 || len(answer[0]) != 8:
		h.unusable = errors.New("the server's answer is incomplete")
		return h, nil
	}
	row := answer[0]
	if row[7].string == "0" {
		return nil, errAutocommitOff // the status of MySQL's answers does not show its global variable
	}
	number, err := strconv.ParseUint(row[5].string, 10, 64)
	h.proxied = err == nil && uint32(number) != uint32(thread)
	if row[3].string != "" {
		h.unusable = errInitConnect
		return h, nil
	}
	h.setup = setupStatement(row[0], row[1], row[2], c.Params)
	h.role = roleStatement(row[4])
	h.charset = row[6].string != "1"
	return h, nil
}

// setupStatement sets what the driver sets at connect in SET NAMES and SET. The client's character
// set alone would get its compiled default collation. No variable shows this collation, but the
// arguments of prepared statements have it (MariaDB 11.8: "Illegal mix of collations"). SET NAMES …
// COLLATE gives the connection's collation.
func setupStatement(client, collation, results text, variables map[string]string) string {
	var set strings.Builder
	if client.valid && strings.HasPrefix(collation.string, client.string+"_") {
		fmt.Fprintf(&set, "SET NAMES %s COLLATE %s", quoted(client), quoted(collation))
	} else {
		fmt.Fprintf(&set, "SET character_set_client = %s, collation_connection = %s", quoted(client), quoted(collation))
	}
	set.WriteString(", character_set_results = " + quoted(results))
	for _, name := range slices.Sorted(maps.Keys(variables)) {
		set.WriteString(", " + name + " = " + variables[name])
	}
	return set.String()
}

func quoted(s text) string {
	if !s.valid {
		return "NULL"
	}
	return "'" + strings.ReplaceAll(s.string, "'", "''") + "'"
}

// roleStatement returns the SET ROLE for a value of CURRENT_ROLE(): MySQL answers NONE or a list of
// quoted names, MariaDB NULL or one plain name.
func roleStatement(role text) string {
	switch {
	case !role.valid || role.string == "NONE":
		return "SET ROLE NONE"
	case strings.HasPrefix(role.string, "`"):
		return "SET ROLE " + role.string
	}
	return "SET ROLE " + identifier(role.string)
}

func identifier(name string) string { return "`" + strings.ReplaceAll(name, "`", "``") + "`" }

// moves are the statements that may have changed the role or the database. A procedure restores the
// database, unless it prepares and executes USE.
const moves = dialects.Suspect | dialects.ForgetPrepared | dialects.NamedPrepared

// Clean resets the connection and sets again what the driver had set. The
// server forgets every prepared statement. The driver's objects for these statements may still be
// closed: the server does not reuse a number within a connection.
func (s *session) Clean(ctx context.Context, effect dialects.Effect) (kept bool, err error) {
	h := s.home
	switch {
	case h == nil:
		return false, dialects.ErrCannotClean
	case h.unusable != nil:
		return false, fmt.Errorf("%w: %w", dialects.ErrCannotClean, h.unusable)
	case !s.healthy():
		return false, driver.ErrBadConn
	}
	if effect&moves != 0 && h.database == "" {
		if err := s.inNoDatabase(ctx); err != nil {
			return false, err
		}
	}
	marked, err := s.mark(ctx)
	if err != nil {
		return false, err
	}
	if err := s.reset(ctx); err != nil {
		return false, err
	}
	s.variables = nil
	return false, s.restoreHome(ctx, effect&moves != 0, marked)
}

// restoreHome sets, after a reset, what the reset does not bring back. moved: role and
// database may have changed. marked: the reset has to be proven.
func (s *session) restoreHome(ctx context.Context, moved, marked bool) error {
	h := s.home
	// The driver has not seen the reset. The answer to this first statement also updates the
	// driver's copy of the server's status.
	if err := execute(ctx, s.conn, h.setup); err != nil {
		return err
	}
	if marked {
		if err := s.prove(ctx); err != nil {
			return err
		}
	}
	if moved {
		if err := execute(ctx, s.conn, h.role); err != nil {
			return err
		}
	}
	if h.database != "" && (moved || h.charset) {
		return execute(ctx, s.conn, "USE "+identifier(h.database))
	}
	return nil
}

// inNoDatabase returns ErrCannotClean if the session is in a database: no statement leads back from
// USE to no database.
func (s *session) inNoDatabase(ctx context.Context) error {
	answer, err := ask(ctx, s.conn, "SELECT DATABASE()")
	if err == nil && (len(answer) != 1 || answer[0][0].valid) {
		err = dialects.ErrCannotClean
	}
	return err
}

// resetPacket is COM_RESET_CONNECTION: a length of one, sequence number zero,
// the command.
var resetPacket = []byte{1, 0, 0, 0, 0x1f}

// reset speaks to the server past the driver, which knows no such command. The
// driver is between two commands: it has read every answer, its buffer is empty, and in the next
// command it counts sequence numbers from zero.
func (s *session) reset(ctx context.Context) (err error) {
	if err := s.listen(); err != nil {
		return err
	}
	deadline, _ := ctx.Deadline() // no deadline: the zero time, which means no deadline here, too
	if err := s.wire.SetDeadline(deadline); err != nil {
		return err
	}
	wake := context.AfterFunc(ctx, func() { _ = s.wire.SetDeadline(time.Unix(1, 0)) })
	defer func() {
		if !wake() {
			// The deadline may be set at any moment from now on: the
			// connection must not be used any more.
			err = errors.Join(err, context.Cause(ctx))
			return
		}
		err = errors.Join(err, s.wire.SetDeadline(time.Time{}))
	}()
	if _, err := s.carrier.Write(resetPacket); err != nil {
		return err
	}
	return readOutcome(s.carrier)
}

// listen returns an error if TLS has taken something from the wire that the driver has not read: no
// look at the socket shows it. Under a deadline that has passed, TLS returns what it has, and the
// wire nothing.
func (s *session) listen() error {
	if s.carrier == net.Conn(s.wire) {
		return nil
	}
	if err := s.wire.SetReadDeadline(time.Unix(1, 0)); err != nil {
		return err
	}
	if _, err := s.carrier.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		return errors.Join(errSpoke, err)
	}
	return nil
}

// readOutcome reads one packet, OK or ERR, and not a byte more.
func readOutcome(r io.Reader) error {
	var header [4]byte
	if _, err := io.ReadFull(r, header[:]); err != nil {
		return err
	}
	size := int(header[0]) | int(header[1])<<8 | int(header[2])<<16
	if header[3] != 1 || size == 0 || size > 1<<16 {
		return errors.New("the answer to COM_RESET_CONNECTION is out of order")
	}
	packet := make([]byte, size)
	if _, err := io.ReadFull(r, packet); err != nil {
		return err
	}
	switch {
	case packet[0] == 0:
		return nil
	case packet[0] == 0xff && size >= 3:
		refusal := &mysql.MySQLError{Number: binary.LittleEndian.Uint16(packet[1:]), Message: "COM_RESET_CONNECTION refused"}
		return fmt.Errorf("%w: %w", dialects.ErrCannotClean, refusal)
	}
	return errors.New("the answer to COM_RESET_CONNECTION is neither OK nor an error")
}
