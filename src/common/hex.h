/*
 * hex.h
 *		Hexadecimal digits.
 */
#ifndef QUEEN_HEX_H
#define QUEEN_HEX_H

/* The value of a digit of either case, -1 for any other character. */
static inline int
hex_digit(char c)
{
	if (c >= '0' && c <= '9')
		return c - '0';
	if (c >= 'a' && c <= 'f')
		return c - 'a' + 10;
	if (c >= 'A' && c <= 'F')
		return c - 'A' + 10;
	return -1;
}

/* The value of two digits, -1 when they are not; what follows a bad one is not read. */
static inline int
hex_byte(const char *digits)
{
	int high = hex_digit(digits[0]);
	int low = high < 0 ? -1 : hex_digit(digits[1]);

	return low < 0 ? -1 : high << 4 | low;
}

#endif
