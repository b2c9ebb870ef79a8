package pods

import "time"

// longest is more than anybody waits for. A time.Duration holds a few times as much, so that sums of it and of times that are not far off are right.
const longest = 100 * 365 * 24 * time.Hour

// Seconds is how long so many seconds are, which a user wrote and which may be more than a time.Duration holds: then it is 100 years.
func Seconds(n int64) time.Duration {
	return time.Duration(min(max(n, 0), int64(longest/time.Second))) * time.Second
}
