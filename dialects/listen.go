package dialects

import "context"

// A ListenTemplate is a Template of a database whose server sends notifications to sessions that listen
// (PostgreSQL).
type ListenTemplate interface {
	Template
	// DialListener is Dial for a connection that listens. It leads to a server that sends
	// notifications, whatever role the DSN asks for.
	DialListener(ctx context.Context, cred *Credential) (Listener, error)
	// CheckChannel returns an error if no channel can have this name. The name is data: the server's
	// rules for names in statements, such as folding to lower case, do not apply.
	CheckChannel(name string) error
}

// A Listener is a Session that listens.
type Listener interface {
	Session

	// Listen and Unlisten change what the server sends to this session, in one round trip: for all of
	// the channels or, with an error, for none.
	Listen(ctx context.Context, channels []string) error
	Unlisten(ctx context.Context, channels []string) error

	// Notify sends a notification.
	Notify(ctx context.Context, channel, payload string) error

	// Wait returns the next notification. If ctx ends first, the session can be used as before.
	// Notifications that the session has read already are returned also if ctx has ended, or the
	// connection is lost.
	Wait(ctx context.Context) (channel, payload string, err error)

	// Relayed asks the server whether a pooler in between chooses the session that executes a statement.
	Relayed(ctx context.Context) (bool, error)
}
