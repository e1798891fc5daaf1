package carrier

import "github.com/jackc/pgx/v5/pgproto3"

// A transaction whose BEGIN has failed: the server has none, and pgx must see one that has failed.

// refuse answers p as a server does whose transaction has failed. It knows only the plain ends of a
// transaction. It discards messages of the extended protocol up to the Sync.
func (c *Carrier) refuse(f flight, p []byte) {
	if f.ends() {
		c.enter(passing)
		c.answer("ROLLBACK", 'I')
		return
	}
	for len(p) > 0 {
		msg, err := firstMessage(p)
		if err != nil || msg == nil {
			return // pgx writes no such flight
		}
		p = p[len(msg):]
		switch kind := msg[0]; {
		case kind == 'S':
			c.skips = false
			c.ready('E')
		case c.skips || kind == 'H' || kind == 'd' || kind == 'c' || kind == 'f':
		case kind == 'C':
			c.out = encode(c.out, &pgproto3.CloseComplete{})
		case kind == 'Q' || kind == 'F':
			c.fail()
			c.ready('E')
		default:
			c.fail()
			c.skips = true
		}
	}
}

// fail makes pgx read the error of BEGIN, if pgx has not read it yet, or the error that a server
// gives for everything in a failed transaction.
func (c *Carrier) fail() {
	if c.cause != nil {
		c.out = append(c.out, c.cause...)
		c.cause = nil
		return
	}
	c.out = encode(c.out, &pgproto3.ErrorResponse{
		Severity: "ERROR", SeverityUnlocalized: "ERROR", Code: "25P02", // in_failed_sql_transaction
		Message: "current transaction is aborted, commands ignored until end of transaction block",
		Detail:  "The transaction could not begin.",
	})
}

// answer makes pgx read that a command was executed, and the status after it.
func (c *Carrier) answer(tag string, status byte) {
	c.out = encode(c.out, &pgproto3.CommandComplete{CommandTag: []byte(tag)})
	c.ready(status)
}

func (c *Carrier) ready(status byte) {
	c.out = encode(c.out, &pgproto3.ReadyForQuery{TxStatus: status})
}
