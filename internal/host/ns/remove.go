package ns

import "errors"

// Remove unpins the directory's namespaces and removes the directory. It is idempotent, and does the same for what a
// crash in the middle of Create or Remove, or a reboot, has left.
func Remove(dir string) error { return errors.New("not yet") }
