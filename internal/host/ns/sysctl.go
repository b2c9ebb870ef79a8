package ns

import "errors"

// CheckSysctls tells, without touching anything, whether every sysctl of the options belongs to a namespace that they
// ask for; else it fails with InvalidArgument and names the sysctl.
func CheckSysctls(o Options) error { return errors.New("not yet") }
