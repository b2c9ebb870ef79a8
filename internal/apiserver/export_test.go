package apiserver

// Renew is what the server does once a day.
func (s *Server) Renew() (renewed []string, err error) { return s.renew() }
