package classify

import "errors"

// ErrKey is the error of a PRAGMA outside of any task that gives one connection the key of its file.
var ErrKey = errors.New("pooldriver: this PRAGMA was not executed: it gives one connection the key of the file; the other connections would read and write without the key, perhaps a file that is not encrypted; give the key to the driver in its DSN or connector, which makes it the first statement of each connection")
