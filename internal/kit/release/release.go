// Package release compares versions of the Linux kernel. It is pure.
package release

import "fmt"

// Version is that of a kernel, as far as features depend on it.
type Version struct{ Major, Minor int }

// Parse reads a version ("4.8"), or the release of a kernel ("6.1.0-18-cloud-amd64").
func Parse(s string) (v Version, err error) {
	if _, err := fmt.Sscanf(s, "%d.%d", &v.Major, &v.Minor); err != nil {
		return Version{}, fmt.Errorf("%q is no version of a kernel, as 4.8 is", s)
	}
	return v, nil
}

// Before says that v is older than o.
func (v Version) Before(o Version) bool {
	return v.Major < o.Major || v.Major == o.Major && v.Minor < o.Minor
}

// String is as people write it: 4.8.
func (v Version) String() string { return fmt.Sprintf("%d.%d", v.Major, v.Minor) }
