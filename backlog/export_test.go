package backlog

// Remembered is how many queues the watermarks keep counts of.
func (w *Limiter) Remembered() int {
	w.mu.Lock()
	defer w.mu.Unlock()
	return len(w.marks)
}
