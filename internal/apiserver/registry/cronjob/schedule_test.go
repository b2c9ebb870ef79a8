package cronjob

import "testing"

// A schedule is read, or refused: nothing that somebody sends ends the server.
func FuzzSchedule(f *testing.F) {
	for _, text := range []string{"", "* * * * *", "*/5 0-3,7 ? jan-mar mon", "@daily", "@every 1h", "@every", "TZ=0", "CRON_TZ=UTC", "TZ=UTC 0 0 * * *", "60 * * * *", "0 0 31 2 *", "-1 * * * *", "*/0 * * * *"} {
		f.Add(text)
	}
	f.Fuzz(func(t *testing.T, text string) {
		if err := parse(text); err == nil && text == "" {
			t.Error("no schedule is one")
		}
	})
}
