package links

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"golang.org/x/sys/unix"

	"monopod.dev/monopod/internal/host/ns"
)

// Files of the host's sysctls. They show the network namespace of the thread that opens them.
const (
	IPForwardFile  = "/proc/sys/net/ipv4/ip_forward"
	IP6ForwardFile = "/proc/sys/net/ipv6/conf/all/forwarding"
	IP6Conf        = "/proc/sys/net/ipv6/conf"
)

// Forwards says whether the kernel forwards packets, by the family's file.
func Forwards(file string) (bool, error) {
	raw, err := os.ReadFile(file)
	if err != nil {
		return false, fmt.Errorf("network: %w", err)
	}
	return strings.TrimSpace(string(raw)) != "0", nil
}

// HasIPv6 says whether the host has IPv6 and can forward it.
func HasIPv6() bool {
	if ipv6Off(nil, "all") || ipv6Off(nil, "default") {
		return false
	}
	f, err := os.OpenFile(IP6ForwardFile, os.O_WRONLY, 0) // opening changes nothing
	if err != nil {
		return false
	}
	f.Close()
	return true
}

// WriteIPv6 sets an IPv6 sysctl of an interface. That the interface is gone, or has no IPv6, is no error.
func WriteIPv6(name, sysctl, value string) error {
	err := os.WriteFile(filepath.Join(IP6Conf, name, sysctl), []byte(value+"\n"), 0)
	if errors.Is(err, os.ErrNotExist) {
		return nil
	}
	return err
}

// IsReadOnly says that sysctls cannot be written here: /proc/sys is mounted read-only, as in many containers.
func IsReadOnly(err error) bool {
	return errors.Is(err, unix.EROFS) || errors.Is(err, os.ErrPermission)
}

// ipv6Off says whether the interface cannot have IPv6 addresses. It is called on a thread in its namespace.
func ipv6Off(in *ns.Procfs, name string) bool {
	raw, err := in.Read("net/ipv6/conf/" + name + "/disable_ipv6")
	return err != nil || strings.TrimSpace(raw) != "0"
}
