package hostfacts

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"strings"
	"time"

	"github.com/containerd/errdefs"
)

// loadedProfiles lists the profiles that the kernel has.
const loadedProfiles = "/sys/kernel/security/apparmor/profiles"

// parserBound is how long the parser may take; it needs some tens of milliseconds.
const parserBound = 10 * time.Second

// loadDefaultProfile gives the kernel the default profile and returns its name.
func loadDefaultProfile(ctx context.Context) (string, error) {
	parser, err := findParser()
	if err != nil {
		return "", err
	}
	ctx, cancel := context.WithTimeout(ctx, parserBound)
	defer cancel()
	// Without a cache: what is in the kernel is what is written here.
	cmd := exec.CommandContext(ctx, parser, "--replace", "--skip-cache")
	cmd.Stdin = strings.NewReader(profileForHost())
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w: %s", parser, err, bytes.TrimSpace(out))
	}
	return defaultProfileName, nil
}

// findParser looks for the parser beside $PATH where it is installed, which a service's $PATH may lack.
func findParser() (string, error) {
	for _, name := range []string{"apparmor_parser", "/usr/sbin/apparmor_parser", "/sbin/apparmor_parser"} {
		if path, err := exec.LookPath(name); err == nil {
			return path, nil
		}
	}
	return "", errors.New("there is no apparmor_parser")
}

// CheckProfile refuses a profile that the kernel does not have: a container would be made that cannot start.
func CheckProfile(name string) error {
	if name == "" || name == defaultProfileName {
		return nil
	}
	raw, err := os.ReadFile(loadedProfiles)
	if errors.Is(err, fs.ErrNotExist) {
		return nil // securityfs is not mounted; the kernel tells at the start
	}
	if err != nil {
		return err
	}
	if !hasProfile(string(raw), name) {
		return fmt.Errorf("linux.security_context.apparmor: profile %q is not loaded: load it with apparmor_parser: %w", name, errdefs.ErrFailedPrecondition)
	}
	return nil
}

// hasProfile looks for a name in the kernel's list, whose lines are "name (mode)"; a name may have spaces.
func hasProfile(list, name string) bool {
	for line := range strings.Lines(list) {
		line = strings.TrimSpace(line)
		if i := strings.LastIndex(line, " ("); i >= 0 && line[:i] == name {
			return true
		}
	}
	return false
}
