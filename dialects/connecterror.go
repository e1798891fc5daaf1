package dialects

// ConnectError is the error of a connection that could not be made. errors.As finds in it what the driver and the server have said,
// such as a *net.OpError, a *pgconn.PgError or a *mysql.MySQLError, but no type of the driver that holds a password (*pgconn.ConnectError).
type ConnectError struct {
	Target string   // where the DSN leads, without a secret
	Hosts  []string // the DSN's servers, as host:port or a path, in its order; nil: they are not known (Wrap)
	Err    error    // the driver's; after several attempts the last one comes first
}

func (e *ConnectError) Error() string {
	return "pooldriver: connecting to " + e.Target + ": " + e.Err.Error()
}

func (e *ConnectError) Unwrap() error { return e.Err }

// HostsOf returns the servers of a template that is a HostLister.
func HostsOf(t Template) []string {
	if l, ok := t.(HostLister); ok {
		return l.Hosts()
	}
	return nil
}
