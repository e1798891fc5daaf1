package postgres

import (
	"errors"
	"fmt"
	"io/fs"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/pooldriver/pooldriver/dialects"
)

// explainParse says in our words what pgx found wrong with a DSN. The error of pgx holds the whole
// DSN, shows most of it, and hides a password only if pgx recognises it. So not even its chain is
// passed on, except the system's reason why a file could not be read.
func explainParse(err error) error {
	var parseErr *pgconn.ParseConfigError
	if !errors.As(err, &parseErr) {
		return errors.New("the DSN cannot be read")
	}
	// Without the DSN the text is only the finding. The finding is compared with the known
	// findings, and never shown.
	blank := *parseErr
	blank.ConnString = ""
	finding := strings.TrimPrefix(blank.Error(), "cannot parse ``: ")

	var pathErr *fs.PathError
	for _, f := range findings {
		if !strings.Contains(finding, f.pgx) {
			continue
		}
		if errors.As(err, &pathErr) {
			return fmt.Errorf("%s: %w", f.ours, pathErr.Err)
		}
		return errors.New(f.ours)
	}
	return errors.New("the DSN cannot be read")
}

// findings are pgx's findings, the more special first.
var findings = []struct{ pgx, ours string }{
	{"forbidden NUL byte", "the DSN holds a NUL byte"},
	{"forbidden value %00", "the DSN holds a NUL byte, written as %00"},
	{"invalid percent-encoded token", "the DSN holds a % that is not followed by two hexadecimal digits; " + dialects.InPassword},
	{"unexpected spaces found", "the DSN is a URL with a space in it; write it as %20"},
	{`looking for matching "]"`, "the DSN has a [ before its host and no ] behind it"},
	{"IPv6 host address may not be empty", "the DSN has nothing between [ and ], where an IPv6 address belongs"},
	{"failed to parse as URL (unexpected character", "the DSN has something other than :PORT or /DATABASE behind the ] of its host"},
	{"failed to parse as URL", "the DSN cannot be read as a URL: postgres://user:password@host:port/database?name=value&name=value; " + dialects.InPassword},
	{"unterminated quoted string", "the DSN has a value that begins with ' and does not end with one"},
	{"failed to parse as keyword/value (missing", "the DSN has a keyword without a = behind it; put a value with spaces in it between '…'"},
	{"failed to parse as keyword/value", "the DSN is neither a URL (postgres://…) nor keywords and values (host=… user=… password=… dbname=…)"},

	{"failed to read service (failed to read service file", "the service file cannot be read; see the parameter servicefile and PGSERVICEFILE"},
	{"failed to read service", "the service file has no such service; see the parameter service and PGSERVICE"},

	{"could not match", "the number of ports is neither one nor that of the hosts"},
	{"invalid port", "a port is not a number from 1 to 65535; " + dialects.InPassword},
	{"invalid connect_timeout", "the parameter connect_timeout is not a number of seconds"},

	{"sslmode is invalid", "the parameter sslmode is none of disable, allow, prefer, require, verify-ca, verify-full"},
	{"invalid sslcertmode", "the parameter sslcertmode is none of disable, allow, require"},
	{"unable to read CA file", "the file of the parameter sslrootcert cannot be read"},
	{"unable to add CA", "the file of the parameter sslrootcert holds no certificate in PEM form"},
	{"unable to load system certificate pool", "the system's certificates (sslrootcert=system) cannot be read"},
	{`both "sslcert" and "sslkey"`, "the parameters sslcert and sslkey go together"},
	{"unable to read sslkey", "the file of the parameter sslkey cannot be read"},
	{"failed to decode sslkey", "the file of the parameter sslkey holds no key in PEM form"},
	{"unable to find sslpassword", "the key of the parameter sslkey is encrypted; it takes the parameter sslpassword"},
	{"unable to decrypt key", "the key of the parameter sslkey cannot be decrypted with the parameter sslpassword"},
	{"unable to read cert", "the file of the parameter sslcert cannot be read"},
	{"unable to load cert", "the files of the parameters sslcert and sslkey are no certificate with its key in PEM form"},
	{"failed to configure TLS", "the parameters of TLS (sslmode, sslrootcert, sslcert, sslkey) do not fit together"},

	{"target_session_attrs", "the parameter target_session_attrs is none of any, read-write, read-only, primary, standby, prefer-standby"},
	{"min_protocol_version cannot be greater", "the parameter min_protocol_version is greater than max_protocol_version"},
	{"min_protocol_version", "the parameter min_protocol_version is none of 3.0, 3.2, latest"},
	{"max_protocol_version", "the parameter max_protocol_version is none of 3.0, 3.2, latest"},
	{"channel_binding", "the parameter channel_binding is none of disable, prefer, require"},
	{"require_auth", "the parameter require_auth is not a list of authentication methods"},

	{"statement_cache_capacity", "the parameter statement_cache_capacity is not a number"},
	{"description_cache_capacity", "the parameter description_cache_capacity is not a number"},
	{"default_query_exec_mode", "the parameter default_query_exec_mode is none of cache_statement, cache_describe, describe_exec, exec, simple_protocol"},
}
