package apiserver

// Renew is what the server does once a day.
func (a *Access) Renew() (renewed []string, err error) { return a.renew() }
