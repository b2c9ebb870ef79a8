package harness

import (
	"testing"

	"monopod.dev/monopod/internal/image/ociarchive"
	"monopod.dev/monopod/test/images"
	"monopod.dev/monopod/test/vm/machine"
)

// Databases is an image with PostgreSQL, MariaDB and Redis, of Debian's packages, which are not installed: their services would begin to run on the host.
func Databases(t testing.TB) ImageMaker {
	t.Helper()
	dir, err := machine.Unpacked(t.Context(), machine.DefaultCache(), "databases",
		"postgresql-15", "postgresql-client-15", "libpq5", "libicu72", "libldap-2.5-0", "libsasl2-2", "libxml2", "libreadline8", "libtinfo6",
		"mariadb-server-core", "mariadb-client-core", "libnuma1", "liburing2", "libpcre2-8-0", "libncurses6",
		"redis-server", "redis-tools", "libjemalloc2", "liblzf1", "libatomic1")
	if err != nil {
		t.Fatal(err)
	}
	const pg = "usr/lib/postgresql/15/"
	programs := []string{
		pg + "bin/postgres", pg + "bin/initdb", pg + "bin/psql", "usr/sbin/mariadbd", "usr/bin/mariadb", "usr/bin/my_print_defaults", "usr/bin/resolveip",
		"usr/bin/redis-check-rdb", "usr/bin/redis-cli",
	}
	return func(name string) (ociarchive.Image, error) {
		return images.Unpacked(name, dir, programs, []string{pg + "lib/bitcode", "etc"})
	}
}
