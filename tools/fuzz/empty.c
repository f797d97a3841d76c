/* A program that shows whether a sanitizer works here. */
int main(void) { return 0; }
